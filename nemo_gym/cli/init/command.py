"""The command that creates the folder of a new environment or benchmark."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from nemo_gym.cli import printing
from nemo_gym.cli.init import scaffold
from nemo_gym.cli.init.environments import create
from nemo_gym.cli.init.wanted import Kind, Profile, Wanted
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import CommandSettings
from nemo_gym.errors import UsageError


class InitSettings(CommandSettings):
    """Parameters of `ng_init_resources_server`."""

    entrypoint: str | None = None
    """The folder of a new environment with its own server. Write it as resources_servers/<name>."""
    environment: str | None = None
    """The name of a new environment in environments/. Its server is new, too, unless reuse_verifier names one."""
    benchmark: str | None = None
    """The name of a new benchmark in benchmarks/."""
    profile: Profile | None = None
    """The part that you write: the verifier (the default), the agent, an agent around an external program, or a
    program that drives the rollouts itself."""
    reuse_verifier: str | None = None
    """An existing environment whose verifier is used, instead of a new one. NAME/FLAVOR selects its config
    FLAVOR.yaml."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward. Usually 0 and 1."""
    higher_is_better: bool | None = None
    """Higher rewards are better. This is the default."""
    lower_is_better: bool = False
    """Lower rewards are better, as for a count of errors."""


def init(words: list[str]) -> int:
    """Create the folder of a new environment or benchmark: a working example to be changed step by step."""
    summary = (
        "Create the folder of a new environment or benchmark in the working folder: a working example to be changed "
        "step by step."
    )
    settings = Options("ng_init_resources_server", InitSettings, summary, takes_config=False).settings(words)
    _check(settings)
    if settings.entrypoint is not None:
        printing.say(scaffold(settings.entrypoint, Path.cwd(), _as_called).next_steps)
        return 0
    kind: Kind = "benchmark" if settings.benchmark else "environment"
    wanted = Wanted(
        kind=kind,
        name=settings.benchmark or settings.environment or "",
        profile=settings.profile or "custom-gym-verifier",
        verifier=settings.reuse_verifier,
        reward_range=settings.reward_range,
        higher_is_better=not settings.lower_is_better and settings.higher_is_better is not False,
    )
    printing.say(create(wanted, Path.cwd(), _as_called).next_steps)
    return 0


def _check(settings: InitSettings) -> None:
    given = [settings.entrypoint, settings.environment, settings.benchmark]
    if sum(each is not None for each in given) != 1:
        raise UsageError("Choose exactly one of --resources-server NAME, --environment NAME and --benchmark NAME.")
    if settings.lower_is_better and settings.higher_is_better:
        raise UsageError("--higher-is-better and --lower-is-better contradict each other. Choose one.")
    only_composed = {
        "--profile": settings.profile,
        "--reuse-verifier": settings.reuse_verifier,
        "--reward-range": settings.reward_range,
        "--higher-is-better": settings.higher_is_better,
        "--lower-is-better": settings.lower_is_better or None,
    }
    unused = [flag for flag, value in only_composed.items() if value is not None]
    if settings.entrypoint is not None and unused:
        raise UsageError(
            f"{', '.join(unused)}: not used with --resources-server, which creates a server with a tool and a reward "
            "of 0 or 1. Choose --environment or --benchmark."
        )


def _as_called(name: str) -> str:
    """Return the command for a program of this installation: its name if it is on the PATH, else its path."""
    for folder in (Path(sys.argv[0]).parent, Path(sys.executable).parent):
        if (folder / name).is_file():
            found = shutil.which(name)
            is_found = found is not None and Path(found).parent.samefile(folder)
            return name if is_found else shlex.quote(str(folder / name))
    return name
