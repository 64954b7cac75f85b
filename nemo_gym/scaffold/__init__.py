"""Write the folder of a new environment: one that works, to be changed step by step."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import unicodedata
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.reserved import RESERVED_KEYS
from nemo_gym.config.suggestions import closest
from nemo_gym.errors import DataError

TIER = "resources_servers"
TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE_NAME = "my_environment"
"""The template is an environment itself: `templates/resources_servers/my_environment` lints, tests and runs."""
TEMPLATE_CLASS_NAME = "MyEnvironment"
TEMPLATE_SUFFIXES = frozenset({".py", ".md", ".yaml", ".json", ".jsonl", ".toml"})

LONGEST_NAME = 39
"""With a longer one, lines of the template would grow beyond 119 characters."""
TAKEN_NAMES = RESERVED_KEYS | {"policy_model"}
"""An environment is also a top-level key of the configuration, and there these mean something else."""

SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Scaffolded(NamedTuple):
    """A new environment."""

    folder: Path
    files: tuple[Path, ...]
    """All that was written, sorted."""
    next_steps: str
    """What to run now, for the user to read: one command a line."""


def scaffold(entrypoint: str, root: Path) -> Scaffolded:
    """Write `<root>/resources_servers/<name>` as `entrypoint` (`resources_servers/<name>`) asks, whole or not at all.

    Raises `DataError` where the name cannot be used, or an environment has it already.
    """
    name = _name_in(entrypoint)
    _check_name(name)
    _check_unused(name, root)
    folder = root / TIER / name
    try:
        files = _write(name, folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}). Choose another working folder.") from error
    return Scaffolded(folder, files, _next_steps(name))


def class_name_of(name: str) -> str:
    """The server class of an environment, without its `Server`: `my_env` gives `MyEnv`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _name_in(entrypoint: str) -> str:
    parts = PurePosixPath(entrypoint).parts
    if len(parts) == 2 and parts[0] == TIER:
        return parts[1]
    # What was meant: `my_env`, `resource_server/my_env`, `/some/where/resources_servers/my_env/app.py`.
    named = [part for part in parts if part not in ("/", "..", "app.py") and closest(part, [TIER]) is None]
    guess = _usable(named[-1]) if named else None
    raise DataError(
        f"entrypoint={entrypoint}: a new environment is written to {TIER}/<name> in the working folder."
        + (f" Did you mean '{TIER}/{guess}'?" if guess else f" Write +entrypoint={TIER}/my_env.")
    )


def _check_name(name: str) -> None:
    problem = _problem_of(name)
    if problem is None:
        return
    guess = _usable(name)
    hint = f"Did you mean '{TIER}/{guess}'?" if guess else "Choose another name."
    raise DataError(f"entrypoint={TIER}/{name}: '{name}' cannot be an environment's name: {problem}. {hint}")


def _problem_of(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        return "it has to be letters (a to z), digits and underscores, and begin with a letter"
    if keyword.iskeyword(name):
        return "it is a word of Python's own, so its app.py could not be imported"
    if name in TAKEN_NAMES:
        return "a configuration has a key of this name that means something else"
    if len(name) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} characters"
    return None


def _usable(text: str) -> str | None:
    """The name that `text` comes closest to; None where nothing is left of it, or what is left cannot be used."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    return name if name and _problem_of(name) is None else None


def _check_unused(name: str, root: Path) -> None:
    relative = f"{TIER}/{name}"
    existing = root / relative
    if existing.exists():
        raise DataError(f"{existing}: exists already. Choose another name, or remove it first.")
    elsewhere = paths.find(relative)
    if elsewhere is not None:
        raise DataError(
            f"entrypoint={relative}: there is an environment of this name at {elsewhere}, and which of the two a "
            "configuration means would depend on the working folder. Choose another name."
        )


def _write(name: str, folder: Path) -> tuple[Path, ...]:
    partial = folder.with_name(f".{name}.{os.getpid()}.partial")
    template = TEMPLATES / TIER / TEMPLATE_NAME
    written = []
    try:
        for source in _template_files(template):
            relative = _renamed(str(source.relative_to(template)), name)
            (partial / relative).parent.mkdir(parents=True, exist_ok=True)
            (partial / relative).write_text(_renamed(source.read_text("utf-8"), name), "utf-8")
            written.append(folder / relative)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return tuple(sorted(written))


def _template_files(template: Path) -> list[Path]:
    # Once the template has been run in place, caches lie beside its own files.
    return [
        path
        for path in sorted(template.rglob("*"))
        if path.suffix in TEMPLATE_SUFFIXES and "/." not in path.relative_to(TEMPLATES).as_posix()
    ]


def _renamed(text: str, name: str) -> str:
    return text.replace(TEMPLATE_CLASS_NAME, class_name_of(name)).replace(TEMPLATE_NAME, name)


def _next_steps(name: str) -> str:
    folder = f"{TIER}/{name}"
    return "\n".join(
        [
            f"{folder} is written: a small environment that works. Run its tests, check what it promises, and "
            "score its examples with a policy that acts at random:",
            "",
            f"    ng_test +entrypoint={folder}",
            f"    ng_check +entrypoint={folder}",
            f'    ng_e2e_collect_rollouts "+config_paths=[{folder}/configs/{name}.yaml,{SAMPLE_MODEL}]" '
            f"+split=example +output_jsonl_fpath=results/{name}.jsonl",
            "",
            f"Then make it your own: {folder}/app.py holds the tools and the reward, data/example.jsonl the tasks, "
            "oracle.py a perfect attempt at each, prepare.py what makes more of them. Make rows to train on, and the "
            "example rollouts and their metrics anew:",
            "",
            f"    python {folder}/prepare.py --count 1000 --output {folder}/data/train.jsonl",
            f"    ng_check +entrypoint={folder} +write_examples=true",
        ]
    )
