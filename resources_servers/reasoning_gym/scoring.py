"""What a worker process does with an answer: have the package's own function score it."""

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
NOT_INSTALLED = "reasoning-gym makes and scores questions and is not installed: pip install 'nemo-gym[reasoning-gym]'"
MIXTURE = "composite"
"""The one generator that only mixes others: what it makes bears their names."""
CONFIG_KEY = "generator_config"
"""Where a row's metadata keeps what its generator was given, for some scorers go by it."""
GRID_OF_TUPLES = frozenset({"arc_agi", "rearc"})
"""Their scorers compare with tuples, and JSON has lists only."""

DEADLINE_S = 5.0
MEMORY_LIMIT_BYTES = 4 << 30
NEAR_NAMES = 3


class RowUnusable(ValueError):
    """No answer to this row can be scored; the message says which field and why."""


@cache
def scoring_workers(size: int) -> WorkerPool:
    """The workers of this process; they end with it.

    They are the process's and not a server's, as every new one would take seconds to load the package again.
    """
    # Two at least: an answer without an end must not hold up the others.
    cores = max(os.cpu_count() or 1, 2)
    return WorkerPool(min(size, cores), DEADLINE_S, prepare=load_scorers, memory_limit_bytes=MEMORY_LIMIT_BYTES)


def is_installed() -> bool:
    """Whether the package is there; this folder, which bears its name, is not taken for it."""
    spec = importlib.util.find_spec(PACKAGE)
    return spec is not None and spec.origin is not None


def load_scorers() -> None:
    """Import the package, which takes seconds, and let no answer run as a program."""
    # Its warnings, and those of the packages that it brings, are about their code and nobody's concern here.
    warnings.simplefilter("ignore")
    importlib.import_module(PACKAGE)
    close_doors(PACKAGE)


def generator_names() -> list[str]:
    """The names of all generators, sorted."""
    datasets = importlib.import_module(f"{PACKAGE}.factory").DATASETS
    return sorted(name for name in datasets if name != MIXTURE)


def check_name(name: str, names: Iterable[str]) -> None:
    """Raise `RowUnusable` unless there is such a generator; the message has the names most like it."""
    known = list(names)
    if name in known:
        return
    if name == MIXTURE:
        raise RowUnusable(f"'{MIXTURE}' only mixes generators; name the one that made the question.")
    near = get_close_matches(name, known, n=NEAR_NAMES)
    guess = f"Did you mean {' or '.join(repr(each) for each in near)}?" if near else "It has others."
    raise RowUnusable(f"reasoning-gym has no generator '{name}'. {guess}")


def score(answer: str | None, entry: dict[str, Any], takes_back: bool = False) -> float:
    """The package's score, from 0 to 1, of an answer to an entry of `question`, `answer` and `metadata`.

    With `takes_back` full marks for nothing are less, see `unearned.py`. An answer that the scorer raises on earns 0.
    Raises `RowUnusable` where it raises on the expected answer as well, or gives no finite number; where there is no
    answer the expected one is tried too.
    """
    scorer, entry = _scorer_of(entry)
    if answer is None:
        # Most scorers then look at nothing of the row.
        _check_entry(scorer, entry)
    try:
        given = float(scorer.score_answer(answer, entry))
    except Exception as error:  # noqa: BLE001 - the scorers of a hundred authors: some take any text, some do not
        _check_entry(scorer, entry, error)
        return 0.0
    if not math.isfinite(given):
        raise RowUnusable(f"{entry['metadata']['source_dataset']} gave the score {given}.")
    given = min(max(given, 0.0), 1.0)
    return less_unearned(given, answer, entry) if takes_back and answer is not None else given


def _scorer_of(entry: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The dataset that scores an entry, and the entry as the dataset itself would have made it."""
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
        raise RowUnusable(f"{CONFIG_KEY} must hold the settings of {name}, it is {config}.")
    try:
        return importlib.import_module(PACKAGE).create_dataset(name, **given)
    except Exception as error:
        raise RowUnusable(f"{CONFIG_KEY}: {name} does not take {config} ({type(error).__name__}: {error}).") from error


def _check_entry(scorer: Any, entry: dict[str, Any], raised: Exception | None = None) -> None:
    # Where no answer is stored, all scorers read JSON or moves: an empty list is some.
    expected = entry["answer"] if isinstance(entry["answer"], str) else "[]"
    try:
        scorer.score_answer(expected, entry)
    except Exception as error:  # noqa: BLE001 - see `score`
        name = entry["metadata"]["source_dataset"]
        raise RowUnusable(f"{name} cannot score any answer ({type(error).__name__}: {error}).") from raised
