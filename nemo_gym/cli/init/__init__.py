"""Create the folder of a new environment: a working example to be changed step by step."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.run_settings import RESERVED_KEYS
from nemo_gym.errors import DataError
from nemo_gym.text import closest

TIER = "resources_servers"
TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE_NAME = "my_environment"
"""The template's name. The template is itself an environment that can be linted, tested and run."""
TEMPLATE_CLASS_NAME = "MyEnvironment"
TEMPLATE_SUFFIXES = frozenset({".py", ".md", ".yaml", ".json", ".jsonl", ".csv", ".toml"})
GITIGNORE = ".gitignore"

LONGEST_NAME = 39
"""Maximum length of a name. With a longer name, lines of the template would exceed 119 characters."""
TAKEN_NAMES = RESERVED_KEYS | {"policy_model"}
"""Names that an environment cannot have, because they are top-level configuration keys with another meaning."""

SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CONSTANTS = {"true", "false", "yes", "no", "on", "off", "null"}
"""Words that YAML does not read as strings, in any case of their letters."""


class Scaffolded(NamedTuple):
    """The result of creating an environment: its folder, and the next steps for the user."""

    folder: Path
    next_steps: str
    """Instructions for the user, including commands to run."""


def scaffold(entrypoint: str, root: Path, spelled: Callable[[str], str] = str) -> Scaffolded:
    """Create the folder `entrypoint`, such as `resources_servers/my_env`, in `root`. If that fails, create nothing.

    `spelled` returns the command for a program of this installation, to be shown in the next steps. Raise `DataError`
    if the name is invalid or already used.
    """
    name = _name_in(entrypoint)
    _check_name(name)
    _check_unused(name, root)
    folder = root / TIER / name
    try:
        _write(name, folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}). Choose another working folder.") from error
    return Scaffolded(folder, _next_steps(name, spelled))


def class_name_of(name: str) -> str:
    """Return the class name for an environment, without the suffix `Server`: `my_env` gives `MyEnv`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _name_in(entrypoint: str) -> str:
    parts = PurePosixPath(entrypoint).parts
    if len(parts) == 2 and parts[0] == TIER:
        return parts[1]
    # Guess the name from inputs such as `my_env`, `resource_server/my_env` or `/x/resources_servers/my_env/app.py`.
    named = [part for part in parts if part not in ("/", "..", "app.py") and closest(part, [TIER]) is None]
    guess = _usable(named[-1]) if named else None
    raise DataError(
        f"entrypoint={entrypoint}: a new environment is written to {TIER}/<name> in the working folder."
        + (f" Did you mean '{TIER}/{guess}'?" if guess else " Write --resources-server my_env.")
    )


def _check_name(name: str) -> None:
    problem = problem_of_name(name)
    if problem is None:
        return
    guess = _usable(name)
    hint = f"Did you mean '{TIER}/{guess}'?" if guess else "Choose another name."
    raise DataError(f"entrypoint={TIER}/{name}: '{name}' cannot be an environment's name: {problem}. {hint}")


def problem_of_name(name: str) -> str | None:
    """Return why an environment or a benchmark cannot have this name, or None if it can."""
    if not _NAME.fullmatch(name):
        return "use letters (a to z), digits and underscores, and start with a letter"
    if keyword.iskeyword(name):
        return "it is a Python keyword, so its app.py could not be imported"
    if name.lower() in _CONSTANTS:
        return "YAML reads it as a constant instead of a name"
    if name in TAKEN_NAMES:
        return "a configuration key of this name has another meaning"
    if len(name) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} characters"
    return None


def _usable(text: str) -> str | None:
    """Turn a text into a valid name, or return None if that is not possible."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    return name if name and problem_of_name(name) is None else None


def _check_unused(name: str, root: Path) -> None:
    relative = f"{TIER}/{name}"
    existing = root / relative
    if existing.exists():
        raise DataError(f"{existing} already exists. Choose another name, or remove it first.")
    elsewhere = paths.find(relative)
    if elsewhere is not None:
        raise DataError(
            f"entrypoint={relative}: {elsewhere} has the same name, so the working folder would decide which of the "
            "two a configuration uses. Choose another name."
        )


def _write(name: str, folder: Path) -> None:
    partial = folder.with_name(f".{name}.{os.getpid()}.partial")
    template = TEMPLATES / TIER / TEMPLATE_NAME
    try:
        for source in template_files(template):
            relative = renamed(str(source.relative_to(template)), name)
            (partial / relative).parent.mkdir(parents=True, exist_ok=True)
            (partial / relative).write_text(renamed(source.read_text("utf-8"), name), "utf-8")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def template_files(template: Path) -> list[Path]:
    # Choose files by suffix and skip hidden folders, because running the template in place leaves caches in it.
    return [
        path
        for path in sorted(template.rglob("*"))
        if (path.suffix in TEMPLATE_SUFFIXES or path.name == GITIGNORE)
        and "/." not in path.parent.relative_to(TEMPLATES).as_posix()
    ]


def renamed(text: str, name: str) -> str:
    """Replace the template's names in a text with those of the new environment."""
    return text.replace(TEMPLATE_CLASS_NAME, class_name_of(name)).replace(TEMPLATE_NAME, name)


def _next_steps(name: str, spelled: Callable[[str], str]) -> str:
    folder, ng, chosen = f"{TIER}/{name}", spelled("ng"), f"--resources-server {name}"
    return "\n".join(
        [
            f"{folder} has been created: a small working environment. Run its tests, check it, and score its examples "
            "with a random policy:",
            "",
            f"    {ng} env test {chosen}",
            f"    {ng} env check {chosen}",
            f"    {ng} eval run {chosen} --model-type sample_model --split example --output results/{name}.jsonl",
            "",
            f"Then make it your own: {folder}/app.py holds the tools and the reward, data/example.jsonl the tasks, "
            "oracle.py a perfect attempt at each, prepare.py the code that makes more tasks. Make the training rows, "
            "and update the example rollouts and metrics:",
            "",
            f"    {ng} dataset collate {chosen} --mode train_preparation --output-dir results/{name}_data",
            f"    {ng} env check {chosen} --write-examples",
        ]
    )
