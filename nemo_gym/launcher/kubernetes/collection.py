"""The collection of a deployed run: its command and its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.models import RunConfig
from nemo_gym.config.overrides import Override, override_of_flag
from nemo_gym.errors import UsageError
from nemo_gym.launcher.kubernetes.settings import DeploySettings
from nemo_gym.rollouts.job import CollectJob, EndToEndJob

RESULTS = "/results"
"""The folder at which the results volume is mounted. The image gives its user write access to this folder."""
ROWS_FILE = "rows.jsonl"
LARGEST_ROWS = 700_000
"""Maximum size of the rows in bytes. The rows and the config share a ConfigMap of at most one megabyte."""
COLLECTION_KEYS = {*CollectJob.model_fields, *EndToEndJob.model_fields}
_SET_HERE = {
    "input_jsonl_fpath",
    "output_jsonl_fpath",
    "agent_name",
    "split",
    "resume_from_cache",
    "overwrite",
    "detach",
}


Spelling = Callable[[Sequence[Override]], list[str]]


class Collection(NamedTuple):
    """The collection that a manifest starts."""

    words: tuple[str, ...]
    """The arguments of the collection command, without the address of the head server."""
    rows: str | None
    """The content of the input file; None if the file is in the container already, or the rows come from datasets."""
    values: Mapping[str, object]
    """The collection settings that the config sets, not validated yet."""


def collection_of(run: RunConfig, settings: DeploySettings, spelled: Spelling) -> Collection | None:
    """Return the collection of a run; None if the run only serves. Raise `UsageError` for invalid settings.

    `spelled` returns overrides as flags of the collection command.
    """
    given = {key: run.raw[key] for key in run.raw if key in COLLECTION_KEYS - _SET_HERE}
    options = spelled(
        [override_of_flag(f"--{key}", key, value) for key, value in given.items() if value not in (None, {})]
    )
    values = {key: run.plain.get(key) for key in given}
    agent = settings.agent_name or run.plain.get("agent_name")
    output = f"{RESULTS}/rollouts.jsonl"
    common = (*(["--agent", str(agent)] if agent else []), "--output", output, "--resume", *options)
    if settings.target == "kuberay":
        if settings.input_jsonl_fpath is not None:
            raise UsageError(
                "--input: a RayJob collects only datasets of the config, not a file. Choose the datasets with --split."
            )
        return Collection((*(["--split", settings.split] if settings.split else []), *common), None, values)
    if settings.split is not None:
        raise UsageError(f"--split: not available with --target {settings.target}. Name the rows with --input FILE.")
    if settings.input_jsonl_fpath is None:
        return None
    place, rows = _rows(settings.input_jsonl_fpath)
    return Collection(("--input", place, *common), rows, values)


def _rows(given: Path) -> tuple[str, str | None]:
    """Return the path of the input file in the container, and the file's content if the file is on this machine."""
    found = paths.find(given, Path.is_file)
    if found is None:
        if given.is_absolute():
            # Accept an absolute path, because the file may exist only in the container, for example in the volume of
            # the results.
            return str(given), None
        raise UsageError(
            f"--input {given}: the file does not exist. A file in the volume of the results has a path such as "
            f"{RESULTS}/{given.name}."
        )
    size = found.stat().st_size
    if size > LARGEST_ROWS:
        raise UsageError(
            f"--input {given}: the file has {size:,} bytes, but a manifest can hold only {LARGEST_ROWS:,}. Copy the "
            f"file to the volume of the results, and write --input {RESULTS}/{given.name}."
        )
    try:
        return f"/config/{ROWS_FILE}", found.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {given}: the file cannot be read as UTF-8 ({error}). Name a JSONL file.") from error
