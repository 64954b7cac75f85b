"""Commands that build a wheel of an environment's folder, and install one."""

from __future__ import annotations

import sys
from pathlib import Path

from nemo_gym import paths
from nemo_gym.cli import folders, printing
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import CommandSettings, EntrypointSettings
from nemo_gym.config.without_model import load_without_model
from nemo_gym.contract.environment import own_config
from nemo_gym.errors import DataError
from nemo_gym.launcher.environments import pip, run_installer
from nemo_gym.packaging.installed import PREFIX
from nemo_gym.packaging.wheel import build_wheel, described, read_wheel
from nemo_gym.text import closest, counted


class PackSettings(EntrypointSettings):
    """Parameters of `ng env pack`."""

    output: Path = Path("dist")
    """The folder for the wheel."""


class AddSettings(CommandSettings):
    """Parameters of `ng env add`."""

    wheel: Path
    """The wheel that `ng env pack` built."""


def pack(words: list[str]) -> int:
    """Check an environment, and build a wheel of its folder, and of the agents of its config that are not shipped."""
    options = Options("ng env pack", PackSettings, takes_config=False, names_folders=folders.ANY_FOLDER)
    settings = options.settings(words)
    folder = folders.folder_of(settings.entrypoint).resolve()
    wanted = described(folder)
    if folders.check([f"+entrypoint={folder}"]):
        raise DataError(f"{folder}: not packed, because a check failed. Correct it, and pack the folder again.")
    used = [server.folder.resolve() for server in load_without_model([str(own_config(folder))], []).servers.values()]
    others = [each for each in used if each != folder and not each.is_relative_to(paths.INSTALL_ROOT)]
    wheel, packed = build_wheel(wanted, list(dict.fromkeys([folder, *others])), settings.output)
    printing.say(f"{counted(len(packed.files), 'file')} with the digest {packed.digest[:12]}: {wheel}")
    printing.say(f"to install it: ng env add {wheel}")
    return 0


def add(words: list[str]) -> int:
    """Install a wheel of an environment with its requirements, if its files are those of its manifest."""
    settings = Options("ng env add", AddSettings, takes_config=False, named_by="wheel").settings(words)
    wheel = settings.wheel
    if not wheel.is_file():
        guess = closest(wheel.name, [path.name for path in wheel.parent.glob("*.whl")])
        hint = f" Did you mean '{wheel.parent / guess}'?" if guess else " 'ng env pack' builds one from a folder."
        raise DataError(f"{wheel}: there is no such file.{hint}")
    packed = read_wheel(wheel)
    for name in packed.files:
        others = [each for each in paths.find_all(name, Path.is_file) if f"{PREFIX}{packed.name}" not in each.parts]
        if others:
            raise DataError(f"{wheel}: its file {name} exists already, at {others[0]}. Rename or remove that folder.")
    install = pip("install", sys.executable, {})
    run_installer([*install, str(wheel.resolve())], Path.cwd())
    # Without this step, an installed package of the same version would keep its changed files. Caches are not used,
    # because uv links installed files to those in its cache, so both change.
    again = ["--no-deps", "--force-reinstall", "--no-cache-dir", str(wheel.resolve())]
    run_installer([*install, *again], Path.cwd())
    printing.say(f"{packed.name} {packed.version} is installed, with the digest {packed.digest[:12]}")
    return 0
