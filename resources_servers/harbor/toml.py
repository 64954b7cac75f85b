"""The keys of a `task.toml` that can be honoured here, and the reasons why others cannot."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
FOLDERS = "only one sandbox runs, with this machine's system"
UNSUPPORTED = {
    "steps": "only tasks of one step are played",
    "multi_step_reward_strategy": "only tasks of one step are played",
    "artifacts": "only the working folder is collected",
    "agent.user": "a sandbox has one user, who is not root",
    "agent.allowed_hosts": "sandboxes have no network",
    "verifier.user": "a sandbox has one user, who is not root",
    "verifier.allowed_hosts": "sandboxes have no network",
    "verifier.environment": FOLDERS,
    "verifier.collect": FOLDERS,
    "environment.allowed_hosts": "sandboxes have no network",
    "environment.docker_image": FOLDERS,
    "environment.gpus": "sandboxes have no GPU",
    "environment.gpu_types": "sandboxes have no GPU",
    "environment.tpu": "sandboxes have no TPU",
    "environment.mcp_servers": FOLDERS,
    "environment.skills_dir": "skills are not passed to agents",
    "environment.healthcheck": "nothing is started before the agent",
    "environment.memory": "it is deprecated. Write memory_mb",
    "environment.storage": "it is deprecated. Write storage_mb",
}
"""Keys that change the task or its grading, with the reason why a task with them is not played."""
NO_NETWORK = 'sandboxes have no network. If the task and its tests need none, set it to "no-network"'
Network = Literal["no-network", "public", "allowlist"]


class Unsupported(DataError):
    """The error for a well-formed task that cannot be played here."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Agent(Section):
    timeout_sec: Seconds | None = None
    network_mode: Network | None = None


class Verifier(Section):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    network_mode: Network | None = None


class Environment(Section):
    network_mode: Network = "public"
    build_timeout_sec: Seconds = 600.0
    """It limits the build of an image. Nothing is built here."""
    os: str = "linux"
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    storage_mb: Annotated[int, Field(gt=0)] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None


class Solution(Section):
    env: dict[str, str] = {}


class TaskToml(Section):
    """A `task.toml` all of whose keys are honoured. `task`, `metadata` and `source` describe the task for people."""

    schema_version: str = "1.4"
    task: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    source: str | None = None
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: Solution = Solution()


def read_toml(path: Path) -> TaskToml:
    """Read a `task.toml`. Raise `Unsupported` with the first key that cannot be honoured, or `DataError`."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. Name the folder of a Harbor task, or a folder of them.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}. Correct the TOML.") from error
    if "version" in given:
        given.setdefault("schema_version", given.pop("version"))
    _check_supported(path, given)
    try:
        read = TaskToml.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            raise Unsupported(f"{path}: the key {key} is unknown. Remove it, or play the task with Harbor.") from error
        raise DataError(f"{path}: {key}: {problem['msg']}, found {problem['input']!r}.") from error
    for key, problem in _unsupported_values(read):
        raise Unsupported(f"{path}: {key} is not supported: {problem}.")
    return read


def _check_supported(path: Path, given: dict[str, Any]) -> None:
    """Raise `Unsupported` for a key that cannot be honoured, unless it is an empty list or no GPU."""
    environment = given.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("allow_internet"), bool):
        environment.setdefault("network_mode", "public" if environment.pop("allow_internet") else "no-network")
    for key, reason in UNSUPPORTED.items():
        section, _, name = key.rpartition(".")
        within = given.get(section) if section else given
        if isinstance(within, dict) and name in within and within.pop(name) not in ([], 0 if name == "gpus" else []):
            raise Unsupported(f"{path}: {key} is not supported: {reason}.")


def _unsupported_values(read: TaskToml) -> Iterator[tuple[str, str]]:
    """Yield each key whose value cannot be honoured, with its value, and the reason."""
    if not read.schema_version.startswith("1."):
        yield f"schema_version = {read.schema_version!r}", "only 1.0 to 1.4 are known"
    if read.environment.os.lower() != "linux":
        yield f"environment.os = {read.environment.os!r}", "sandboxes have Linux"
    if read.verifier.environment_mode == "separate":
        yield "verifier.environment_mode = 'separate'", "only the working folder is graded"
    for name in ("environment", "agent", "verifier"):
        if (mode := getattr(read, name).network_mode) not in (None, "no-network"):
            default = " (Harbor's default)" if mode == "public" else ""
            yield f"{name}.network_mode = {mode!r}{default}", NO_NETWORK
    for name in ("environment", "verifier", "solution"):
        for variable, value in getattr(read, name).env.items():
            if "${" in value:
                yield f"{name}.env.{variable} = {value!r}", "variables of this machine are not read. Write the value"
