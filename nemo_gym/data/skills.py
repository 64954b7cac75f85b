"""A folder of skills: what is in it, and a hash that tells when it changes."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import paths
from nemo_gym.errors import ConfigPathNotFoundError, DataError

FRONT_MATTER = re.compile(r"\s*---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)


class SkillsConfig(BaseModel):
    """Which skills a run offers."""

    path: str
    """A folder with one folder per skill, each with a SKILL.md."""


class SkillMetadata(BaseModel):
    """The front matter of a SKILL.md."""

    # In YAML, `version: 1.0` is a number.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str
    description: str | None = None
    version: str | None = None


class SkillsRef(BaseModel):
    """What a row says of the skills it was run with."""

    path: str
    hash: str
    skills: list[SkillMetadata]


def parse_skill_md(path: str | Path) -> SkillMetadata:
    """The front matter of a SKILL.md; `DataError` where there is none, or no name in it."""
    found = FRONT_MATTER.match(Path(path).read_text("utf-8-sig", errors="replace"))
    if found is None:
        raise DataError(f"{path}:1: a skill begins with YAML between two lines of '---'.")
    try:
        return SkillMetadata.model_validate(yaml.safe_load(found[1]))
    except ValidationError as error:
        told = "; ".join(": ".join(map(str, [*problem["loc"], problem["msg"]])) for problem in error.errors())
        raise DataError(f"{path}: the front matter is not a skill's: it needs a 'name'. {told}.") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path}: the front matter is not YAML: {error}") from error


def hash_skill_dir(path: str | Path) -> str:
    """12 hexadecimal digits of SHA-256 over the sorted relative paths and the bytes of all files."""
    folder = Path(path)
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def load_skill_directory(path: str | Path) -> SkillsRef:
    """The skills of a folder, looked for in the search roots.

    Raises `ConfigPathNotFoundError` (a `FileNotFoundError`) where there is no such folder, `DataError` where it holds
    no skill.
    """
    folder = _found(path)
    skills = [parse_skill_md(file) for file in sorted(folder.glob("*/SKILL.md"))]
    if not skills:
        raise DataError(f"skills.path: {folder} holds no skill: a folder with a SKILL.md for each is expected.")
    return SkillsRef(path=str(path), hash=hash_skill_dir(folder), skills=skills)


def stage_skills(path: str | Path, dest: str | Path) -> None:
    """Copy a folder of skills to where an agent looks for them."""
    shutil.copytree(_found(path), dest, dirs_exist_ok=True)


def _found(path: str | Path) -> Path:
    folder = paths.find(path, Path.is_dir)
    if folder is None:
        places = ", ".join(map(str, paths.search_roots()))
        raise ConfigPathNotFoundError(f"skills.path: no folder '{path}' in {places}.")
    return folder
