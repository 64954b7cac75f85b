"""The options of new containers, and the arguments of `docker run`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping

from pydantic import Field

from nemo_gym.sandbox.providers.base import SandboxSpec
from nemo_gym.sandbox.providers.containers import CreateConfig

LABEL = "nemo_gym"
FOREVER = ["sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]


class DockerCreateConfig(CreateConfig):
    """Options of new containers."""

    program: str = "docker"
    """Or another program with the same command line, such as podman."""
    pull: str | None = None
    """missing, always or never."""
    platform: str | None = None
    network: str | None = None
    """A docker network, or `none`; docker's default if omitted."""
    user: str | None = None
    volumes: list[str] = Field(default_factory=list)


def run_options(name: str, spec: SandboxSpec, config: DockerCreateConfig) -> list[str]:
    """Return the arguments of `docker run` before the image."""
    wanted = spec.resources
    single = {
        "--name": name,
        "--pull": config.pull,
        "--platform": config.platform,
        "--network": config.network,
        "--user": config.user,
        "--workdir": spec.workdir,
        "--cpus": wanted.cpu,
        "--memory": f"{wanted.memory_mib}m" if wanted.memory_mib else None,
        "--pids-limit": wanted.pids,
        "--storage-opt": f"size={wanted.disk_gib}G" if wanted.disk_gib else None,
        "--gpus": wanted.gpu or None,
        "--entrypoint": "",
    }
    words = ["run", "--detach", "--init", "--label", LABEL]
    for option, value in single.items():
        words += [option, str(value)] if value is not None else []
    for key, value in spec.metadata.items():
        words += ["--label", f"{LABEL}.{key}={value}"]
    for volume in config.volumes:
        words += ["--volume", volume]
    return [*words, *config.extra_args]


def first_command(spec: SandboxSpec) -> list[str]:
    """Return the container's main command, which ends with the container."""
    first = list(spec.entrypoint or FOREVER)
    if spec.ttl_s is None:
        return first
    # The container enforces the limit itself, in case its owner has ended.
    return ["sh", "-c", '"$@" & sleep "$0"; kill $!', str(spec.ttl_s), *first]


@contextlib.contextmanager
def environment_options(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield options that set variables from a file, because every user of this machine can read a command line."""
    if not env:
        yield []
        return
    # The file format does not support line breaks.
    plain = {key: value for key, value in env.items() if "\n" not in str(value)}
    words = [word for key, value in env.items() if key not in plain for word in ("--env", f"{key}={value}")]
    with tempfile.NamedTemporaryFile("w", prefix="nemo_gym-env-", encoding="utf-8") as file:
        file.writelines(f"{key}={value}\n" for key, value in plain.items())
        file.flush()
        yield ["--env-file", file.name, *words]
