"""`python -m nemo_gym.published check FOLDER` reports what a published folder needs that does not exist here."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SERVER_TYPES
from nemo_gym.paths import EXTRA_ROOTS_ENV_VAR
from nemo_gym.published.missing import missing_in


def main() -> int:
    """Check the folders on the command line. Return 1 if something is missing, and 2 if a folder does not exist."""
    parser = argparse.ArgumentParser(prog="python -m nemo_gym.published", description=__doc__)
    check = parser.add_subparsers(required=True, metavar="check").add_parser("check", help="check folders")
    check.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders: list[Path] = parser.parse_args().folders
    if absent := [folder for folder in folders if not folder.is_dir()]:
        parser.error(f"{absent[0]} is not a folder. Pass the path of a server's folder, or of a collection of them.")
    roots = [*dict.fromkeys(str(_root_of(folder.absolute())) for folder in folders)]
    os.environ[EXTRA_ROOTS_ENV_VAR] = os.pathsep.join([*roots, os.environ.get(EXTRA_ROOTS_ENV_VAR, "")])
    return max(map(_report, folders))


def _report(folder: Path) -> int:
    findings, modules, configs = missing_in(folder)
    print("\n".join(findings) or f"{folder}: nothing is missing in {modules} modules and {configs} configs.")  # noqa: T201
    return 1 if findings else 0


def _root_of(folder: Path) -> Path:
    """Return the folder that contains `resources_servers/` or another tier of this folder."""
    tiers = {*SERVER_TYPES, ENVIRONMENT_SERVERS, "environments", "benchmarks"}
    if any((folder / tier).is_dir() for tier in tiers):
        return folder
    return next((tier.parent for tier in [folder, *folder.parents] if tier.name in tiers), folder)


if __name__ == "__main__":
    sys.exit(main())
