"""Skill folders: their metadata, and a hash that detects changes."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import paths
from nemo_gym.errors import DataError, SkillsNotFoundError

FRONT_MATTER = re.compile(r"\s*---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)


class SkillsConfig(BaseModel):
    """The setting `skills` of a run: a folder of skills for its agents."""

    path: str
    """A folder with one subfolder per skill, each with a SKILL.md."""


class SkillMetadata(BaseModel):
    """The front matter of a SKILL.md."""

    # Convert numbers to strings, because YAML parses `version: 1.0` as a number.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str
    description: str | None = None
    version: str | None = None


class SkillsRef(BaseModel):
    """The skills of a rollout, as its row records them."""

    path: str
    hash: str
    skills: list[SkillMetadata]


def parse_skill_md(path: str | Path) -> SkillMetadata:
    """Return the front matter of a SKILL.md. Raise `DataError` if the front matter is missing or lacks a name."""
    found = FRONT_MATTER.match(Path(path).read_text("utf-8-sig", errors="replace"))
    if found is None:
        raise DataError(f"{path}:1: front matter is missing. Begin the file with YAML between two '---' lines.")
    try:
        return SkillMetadata.model_validate(yaml.safe_load(found[1]))
    except ValidationError as error:
        problems = "; ".join(": ".join(map(str, [*problem["loc"], problem["msg"]])) for problem in error.errors())
        raise DataError(f"{path}: invalid front matter: {problems}. A skill needs a 'name'.") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path}: the front matter is not valid YAML: {error}") from error


def hash_skill_dir(path: str | Path) -> str:
    """Return the first 12 hex digits of the SHA-256 over the files' sorted relative paths and contents."""
    folder = Path(path)
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def load_skill_directory(path: str | Path) -> SkillsRef:
    """Find a folder in the search roots and return its skills.

    Raise `SkillsNotFoundError` if the folder does not exist, and `DataError` if it does not contain a skill.
    """
    folder = _found(path)
    skills = [parse_skill_md(file) for file in sorted(folder.glob("*/SKILL.md"))]
    if not skills:
        raise DataError(
            f"skills.path: {folder} does not contain a skill. Add a subfolder with a SKILL.md for each skill."
        )
    return SkillsRef(path=str(path), hash=hash_skill_dir(folder), skills=skills)


def stage_skills(path: str | Path, dest: str | Path) -> None:
    """Copy a folder of skills to an agent's skills folder. Raise `SkillsNotFoundError` if `path` does not exist."""
    shutil.copytree(_found(path), dest, dirs_exist_ok=True)


def _found(path: str | Path) -> Path:
    folder = paths.find(path, Path.is_dir)
    if folder is None:
        places = ", ".join(map(str, paths.search_roots()))
        raise SkillsNotFoundError(f"skills.path: folder '{path}' not found in {places}. Check the path.")
    return folder
