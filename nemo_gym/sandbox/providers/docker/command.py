"""The options of new containers, and the arguments of `docker run`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping

from pydantic import Field

from nemo_gym.sandbox.providers.base import SandboxResources, SandboxSpec
from nemo_gym.sandbox.providers.containers import CreateConfig, ExecConfig

LABEL = "nemo_gym"
FOREVER = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


class DockerCreateConfig(CreateConfig):
    """The `create` options of the docker provider: how to start a container."""

    program: str = "docker"
    """The program to run: docker, or another program with the same command line, such as podman."""
    pull: str | None = None
    """When to pull the image: `missing`, `always` or `never`."""
    platform: str | None = None
    network: str | None = None
    """The name of a docker network, or `none`. The default is docker's default network."""
    user: str | None = None
    volumes: list[str] = Field(default_factory=list)
    use_init: bool = True
    """Whether a small init process reaps the orphaned processes of commands."""
    read_only: bool = False
    """Whether the container's own file system is read-only."""
    cap_drop: list[str] = Field(default_factory=list)
    security_opt: list[str] = Field(default_factory=list)
    pids_limit: int | None = None
    """The maximum number of processes at the same time. `pids` in the `resources` of a spec overrides it."""
    publish_host: str = "127.0.0.1"
    """The address of this machine to which the `ports` of a spec are mapped, each to a free host port."""
    keepalive_shell: str = "sh"
    keepalive_cmd: str = FOREVER
    """The command line that keeps a container without `entrypoint` alive. `keepalive_shell` runs it."""
    extra_run_args: list[str] = Field(default_factory=list)
    """Additional options of `docker run` for all sandboxes."""
    run_args: list[str] = Field(default_factory=list)
    """Additional options of `docker run` for one sandbox, to be set in the `provider_options` of its spec."""


class DockerExecConfig(ExecConfig):
    """The `exec` options of the docker provider: how to run a command in a container."""

    exec_shell: str | None = None
    """The shell that runs command lines. The default is bash if the image has it, otherwise sh."""


def run_options(name: str, spec: SandboxSpec, config: DockerCreateConfig) -> list[str]:
    """Return the arguments of `docker run` before the image."""
    wanted = spec.resources if config.apply_resource_limits else SandboxResources()
    single = {
        "--name": name,
        "--pull": config.pull,
        "--platform": config.platform,
        "--network": config.network,
        "--user": config.user,
        "--workdir": spec.workdir,
        "--cpus": wanted.cpu,
        "--memory": f"{wanted.memory_mib}m" if wanted.memory_mib else None,
        "--pids-limit": wanted.pids or config.pids_limit,
        "--storage-opt": f"size={wanted.disk_gib}G" if wanted.disk_gib else None,
        "--gpus": spec.resources.gpu or None,
        "--entrypoint": "",
    }
    host = f"[{config.publish_host}]" if ":" in config.publish_host else config.publish_host
    repeated = {
        "--label": [LABEL, *(f"{LABEL}.{key}={value}" for key, value in spec.metadata.items())],
        "--volume": config.volumes,
        "--cap-drop": config.cap_drop,
        "--security-opt": config.security_opt,
        "--publish": [f"{host}::{port}" for port in spec.ports],
    }
    words = ["run", "--detach", *(["--init"] if config.use_init else [])]
    words += ["--read-only"] if config.read_only else []
    for option, value in single.items():
        words += [option, str(value)] if value is not None else []
    for option, values in repeated.items():
        words += [word for value in values for word in (option, value)]
    return [*words, *config.extra_run_args, *config.run_args]


def first_command(spec: SandboxSpec, config: DockerCreateConfig) -> list[str]:
    """Return the container's main command. The container ends when this command ends."""
    first = list(spec.entrypoint or [config.keepalive_shell, "-c", config.keepalive_cmd])
    if spec.ttl_s is None:
        return first
    # Let the container enforce `ttl_s` itself, because the process that created it may end earlier.
    return ["sh", "-c", '"$@" & sleep "$0"; kill $!', str(spec.ttl_s), *first]


@contextlib.contextmanager
def environment_options(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield options that set environment variables from a file, because every user can read a command line."""
    if not env:
        yield []
        return
    # Pass values with line breaks on the command line, because the file format does not support them.
    plain = {key: value for key, value in env.items() if "\n" not in str(value)}
    words = [word for key, value in env.items() if key not in plain for word in ("--env", f"{key}={value}")]
    with tempfile.NamedTemporaryFile("w", prefix="nemo_gym-env-", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in plain.items())
        file.flush()
        yield ["--env-file", file.name, *words]
