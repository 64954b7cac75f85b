"""Read a task folder of Harbor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nemo_gym import DataError
from nemo_gym.sandbox import SandboxResources
from nemo_gym.sandbox.providers.bubblewrap.command import TAKEN
from resources_servers.harbor.dockerfile import Placed, placed_by
from resources_servers.harbor.toml import TaskToml, Unsupported, read_toml
from resources_servers.harbor.tree import Entry, TreeError, digest_of, tree_of

LOGS, TESTS, SOLUTION = "/logs", "/tests", "/solution"
RESERVED = (*TAKEN, LOGS, TESTS, SOLUTION, "/tmp", "/script.py")
"""Folders that cannot be the working folder of a task."""
MIB_PER_GIB = 1024
UNSUPPORTED_FILES = {
    "trajectory.json": "an earlier conversation is not passed to agents",
    "environment/docker-compose.yaml": "services are not started",
    "environment/docker-compose.yml": "services are not started",
    "environment/.dockerignore": "its rules are not read",
}
NEEDED = ("instruction.md", "environment", "tests/test.sh")
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


@dataclass(frozen=True)
class HarborTask:
    """A task that can be played here."""

    name: str
    digest: str
    """It changes with every file of the task."""
    instruction: str
    toml: TaskToml
    image: str
    """The image that Harbor would use; empty without a Dockerfile."""
    workdir: str
    env: dict[str, str]
    """The variables of the agent and of the verifier."""
    files: dict[str, Entry]
    """The working folder before the agent starts."""
    tests: dict[str, Entry]
    solution: dict[str, Entry] | None
    """The folder of `solve.sh`; None without such a file."""

    @property
    def resources(self) -> SandboxResources:
        environment = self.toml.environment
        disk_gib = None if environment.storage_mb is None else environment.storage_mb / MIB_PER_GIB
        return SandboxResources(cpu=environment.cpus, memory_mib=environment.memory_mb, disk_gib=disk_gib)


def task_folders(path: Path) -> list[Path]:
    """Return a task's folder itself, or the folders of tasks in it. Raise `DataError` if nothing is found."""
    if not path.is_dir():
        raise DataError(f"{path}: the folder does not exist. Name the folder of a Harbor task, or a folder of them.")
    if (path / "task.toml").is_file():
        return [path]
    found = sorted(each.parent for each in path.glob("*/task.toml"))
    if not found:
        raise DataError(f"{path}: neither the folder nor one in it has a task.toml. Name a folder with Harbor tasks.")
    return found


def read_task(folder: Path) -> HarborTask:
    """Read a task. Raise `Unsupported` if it cannot be played here, and `DataError` if it is not a task of Harbor."""
    toml = read_toml(folder / "task.toml")
    for name in NEEDED:
        if not (folder / name).exists():
            raise DataError(f"{folder / name}: the file is missing. Add it, as Harbor needs it, too.")
    for name, reason in UNSUPPORTED_FILES.items():
        if (folder / name).exists():
            raise Unsupported(f"{folder / name} is not supported: {reason}.")
    try:
        whole = tree_of(folder)
        text = (folder / "instruction.md").read_text("utf-8")
        placed = _placed(folder, toml, _below(whole, "environment"))
    except (TreeError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{folder}: {error}. Correct the file.") from error
    if ignoring := [name for name in whole if name.endswith(".harborignore")]:
        raise Unsupported(f"{folder / ignoring[0]} is not supported: its rules are not read.")
    return HarborTask(
        name=str((toml.task or {}).get("name") or folder.name),
        digest=digest_of(whole),
        instruction=_without_canary(text),
        toml=toml,
        image=placed.image,
        workdir=placed.workdir,
        env={**placed.env, **toml.environment.env},
        files=_below(placed.files, placed.workdir[1:]),
        tests=_below(whole, "tests"),
        solution=_below(whole, "solution") if "solution/solve.sh" in whole else None,
    )


def _placed(folder: Path, toml: TaskToml, context: dict[str, Entry]) -> Placed:
    """Return the files before the agent starts, by their whole path, and the working folder."""
    dockerfile, workdir = folder / "environment" / "Dockerfile", toml.environment.workdir
    if dockerfile.is_file():
        placed = placed_by(dockerfile.read_text("utf-8"), str(dockerfile), context)
        placed.workdir = workdir or placed.workdir
    elif workdir is not None:
        # Harbor puts the files there, too, if a task has an image without a Dockerfile.
        placed = Placed(workdir=workdir, files={f"{workdir[1:]}/{name}": each for name, each in context.items()})
    else:
        raise Unsupported(f"{folder / 'task.toml'}: environment.workdir is needed without a Dockerfile, such as /app.")
    path = PurePosixPath(placed.workdir)
    if str(path) != placed.workdir or ".." in path.parts or not path.is_absolute() or str(path) == "/":
        raise Unsupported(f"{folder}: the working folder {placed.workdir!r} is not supported. Use one such as /app.")
    if any(path.is_relative_to(each) or PurePosixPath(each).is_relative_to(path) for each in RESERVED):
        raise Unsupported(
            f"{folder}: the working folder {path} is not supported: it belongs to the system or to Harbor."
        )
    outside = [name for name in placed.files if not PurePosixPath(f"/{name}").is_relative_to(path)]
    if outside := [name for name in outside if not path.is_relative_to(f"/{name}")]:
        raise Unsupported(f"{folder}: /{outside[0]} is not supported: only files below {path} reach the agent.")
    return placed


def _below(tree: dict[str, Entry], folder: str) -> dict[str, Entry]:
    start = f"{folder}/"
    return {name.removeprefix(start): entry for name, entry in tree.items() if name.startswith(start)}


def _without_canary(text: str) -> str:
    """Remove the first lines that mark a text as part of a benchmark, as Harbor does."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if not _CANARY.fullmatch(line.strip())), len(lines))
    first = next((number for number in range(first, len(lines)) if lines[number].strip()), len(lines))
    return "\n".join(lines[first:])
