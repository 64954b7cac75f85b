"""Score an answer with reasoning-gym's own function in a worker process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any

from nemo_gym.grading import WorkerPool
from resources_servers.reasoning_gym.doors import close_doors
from resources_servers.reasoning_gym.unearned import less_unearned

PACKAGE = "reasoning_gym"
NOT_INSTALLED = "reasoning-gym is not installed. Install it: pip install 'nemo-gym[reasoning-gym]'"
MIXTURE = "composite"
"""The generator that only mixes other generators. Rows name the generator of their question, never this one."""
CONFIG_KEY = "generator_config"
"""The metadata key for the generator's settings, which some scorers need."""
GRID_OF_TUPLES = frozenset({"arc_agi", "rearc"})
"""Generators whose scorers need grids of tuples. Rows have lists instead, because JSON does not have tuples."""

DEADLINE_S = 5.0
MEMORY_LIMIT_BYTES = 4 << 30
NEAR_NAMES = 3


class RowUnusable(ValueError):
    """An error for a row whose answers cannot be scored. The message names the field and the reason."""


@cache
def scoring_workers(size: int) -> WorkerPool:
    """Return this process's pool of scoring workers for a `size`. The workers run until the process ends.

    Servers in a process with the same `size` share a pool, because a new worker takes seconds to load reasoning-gym.
    """
    # Allow two workers even on a single core, so that a scoring that never ends does not block other answers.
    cores = max(os.cpu_count() or 1, 2)
    return WorkerPool(min(size, cores), DEADLINE_S, prepare=load_scorers, memory_limit_bytes=MEMORY_LIMIT_BYTES)


def is_installed() -> bool:
    """Return whether reasoning-gym is installed. This environment's folder, `reasoning_gym`, does not count."""
    spec = importlib.util.find_spec(PACKAGE)
    return spec is not None and spec.origin is not None


def load_scorers() -> None:
    """Import reasoning-gym and prevent it from executing answers. This takes seconds."""
    # Ignore warnings, because they concern reasoning-gym's own code, and users cannot act on them.
    warnings.simplefilter("ignore")
    importlib.import_module(PACKAGE)
    close_doors(PACKAGE)


def generator_names() -> list[str]:
    """Return the sorted names of all generators."""
    datasets = importlib.import_module(f"{PACKAGE}.factory").DATASETS
    return sorted(name for name in datasets if name != MIXTURE)


def check_name(name: str, names: Iterable[str]) -> None:
    """Raise `RowUnusable` if the generator does not exist. The message suggests similar names."""
    known = list(names)
    if name in known:
        return
    if name == MIXTURE:
        raise RowUnusable(f"'{MIXTURE}' only mixes generators. Name the generator of the question.")
    near = get_close_matches(name, known, n=NEAR_NAMES)
    guess = f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    raise RowUnusable(f"reasoning-gym has no generator '{name}'.{guess}")


def score(answer: str | None, entry: dict[str, Any], takes_back: bool = False) -> float:
    """Return reasoning-gym's score of an answer, from 0 to 1. An entry has `question`, `answer` and `metadata`.

    `takes_back` corrects unearned full marks (see `unearned.py`). An answer earns 0 if its scorer raises an exception.
    Raises `RowUnusable` if the scorer also raises for the expected answer, or returns a number that is not finite. If
    `answer` is None, the expected answer is always scored, too.
    """
    scorer, entry = _scorer_of(entry)
    if answer is None:
        # Check the row here, because most scorers ignore the row if the answer is None.
        _check_entry(scorer, entry)
    try:
        given = float(scorer.score_answer(answer, entry))
    except Exception as error:  # noqa: BLE001 - some of the many scorers raise on unexpected text
        _check_entry(scorer, entry, error)
        return 0.0
    if not math.isfinite(given):
        raise RowUnusable(f"{entry['metadata']['source_dataset']} returned the score {given}, which is not finite.")
    given = min(max(given, 0.0), 1.0)
    return less_unearned(given, answer, entry) if takes_back and answer is not None else given


def _scorer_of(entry: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the dataset that scores an entry, and the entry with the types that the dataset expects."""
    metadata = entry["metadata"]
    name = metadata["source_dataset"]
    check_name(name, generator_names())
    scorer = _dataset(name, json.dumps(metadata.get(CONFIG_KEY) or {}, sort_keys=True))
    if name in GRID_OF_TUPLES and isinstance(metadata.get("output"), list):
        return scorer, {**entry, "metadata": {**metadata, "output": tuple(map(tuple, metadata["output"]))}}
    return scorer, entry


@lru_cache(maxsize=256)
def _dataset(name: str, config: str) -> Any:
    given = json.loads(config)
    if not isinstance(given, dict):
        raise RowUnusable(f"{CONFIG_KEY} must be an object with the settings of {name}, found {config}.")
    try:
        return importlib.import_module(PACKAGE).create_dataset(name, **given)
    except Exception as error:
        raise RowUnusable(f"{CONFIG_KEY}: {name} rejected {config} ({type(error).__name__}: {error}).") from error


def _check_entry(scorer: Any, entry: dict[str, Any], raised: Exception | None = None) -> None:
    # For a row without an answer, use "[]": the scorers of such rows expect JSON or moves, and "[]" is valid as both.
    expected = entry["answer"] if isinstance(entry["answer"], str) else "[]"
    try:
        scorer.score_answer(expected, entry)
    except Exception as error:  # noqa: BLE001 - see `score`
        name = entry["metadata"]["source_dataset"]
        raise RowUnusable(f"{name} cannot score any answer ({type(error).__name__}: {error}).") from raised
