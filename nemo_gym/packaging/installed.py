"""Environments that `ng env pack` made and an installer added: their manifests and the digests of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym.config.models import RunConfig
from nemo_gym.errors import ConfigError
from nemo_gym.plugins import environment_roots
from nemo_gym.text import problems_in

MANIFEST = "environment.json"
"""The manifest's file, in the package's folder."""
PREFIX = "nemo_gym_env_"
"""The start of each package's name."""


class PackedEnvironment(BaseModel):
    """The manifest of a packed environment."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    license: str
    """An SPDX expression, or the name of the file with the licence."""
    nemo_gym: str
    """The version of nemo_gym that checked the environment."""
    requirements: list[str]
    files: dict[str, str]
    """The SHA-256 of each file, by its path in the package."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the paths and digests of all files."""
        return hashlib.sha256(orjson.dumps(self.files, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @classmethod
    def parse(cls, text: bytes, place: str) -> PackedEnvironment:
        """Parse a manifest. Raise `ConfigError` with its place if it is invalid."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ConfigError(f"{place}: {problems_in(error)}. Get the wheel again, from its author.") from error

    def check(self, found: Mapping[str, str], place: str) -> None:
        """Raise `ConfigError` if the digests of the files at a place differ from those of the manifest."""
        changed = sorted(name for name in {*self.files, *found} if self.files.get(name) != found.get(name))
        if changed:
            name = changed[0]
            what = "is missing" if name not in found else "was changed" if name in self.files else "was added"
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise ConfigError(
                f"{place}: {name} {what} after '{self.name}' was packed{more}. Install the wheel again, with 'ng "
                "env add', or pack the changed folder under another name."
            )


def packed_environments(run: RunConfig) -> dict[str, dict[str, str]]:
    """Return the version and the digest of each packed environment in a run, by name.

    Raise `ConfigError` if its files have been changed. Data files that were added, such as prepared rows, are ignored.
    """
    places = [*(server.folder for server in run.servers.values()), *map(Path, run.config_paths)]
    found = {}
    for root in environment_roots():
        if any(each.resolve().is_relative_to(root) for each in places):
            packed = PackedEnvironment.parse((root / MANIFEST).read_bytes(), str(root / MANIFEST))
            there = digests_of(root)
            kept = {name: each for name, each in there.items() if name in packed.files or name.endswith(".py")}
            packed.check(kept, str(root))
            found[packed.name] = {"version": packed.version, "digest": packed.digest}
    return found


def digests_of(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in the subfolders of a package, by its path, except for compiled code."""
    files = (path for path in sorted(root.glob("*/**/*")) if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(root).as_posix(): digest_of(path) for path in files}


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
