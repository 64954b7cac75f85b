"""Make questions for `prepare.py` in a separate process, which reads a JSON request and prints one line per question.

Some generators iterate over sets of strings, whose order differs between Python processes. This process is started
with `PYTHONHASHSEED=0`, so the same seed makes the same questions.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

from nemo_gym import DataError
from resources_servers.reasoning_gym.oracle import answer_to
from resources_servers.reasoning_gym.scoring import (
    CONFIG_KEY,
    PACKAGE,
    RowUnusable,
    check_name,
    generator_names,
    load_scorers,
    score,
)
from resources_servers.reasoning_gym.unearned import GENEROUS, UNEVALUATED

MOST_REJECTED = 100
"""The number of consecutive unusable questions after which a config is rejected.

A question is unusable if an answer that earns 1 is not known.
"""
SEEDS = 2**31
LARGEST_INTEGER = 2**63

Entry = dict[str, Any]


def entries(generators: list[dict[str, Any]], count: int, seed: int, category: str | None = None) -> Iterator[Entry]:
    """Return `count` questions whose generators are drawn by weight.

    Without `generators`, draw from all generators of the category, or of all categories, except those in `GENEROUS`.
    Raises `DataError` for an unknown category or generator, and for a generator without usable questions.
    """
    load_scorers()
    names = [each["name"] for each in generators] or names_in(category)
    for name in names:
        try:
            check_name(name, generator_names())
        except RowUnusable as error:
            raise DataError(str(error)) from error
    configs = {each["name"]: each["config"] for each in generators}
    weights = [each["weight"] for each in generators] or None
    drawn = random.Random(seed).choices(names, weights, k=count)
    made = {name: made_by(name, configs.get(name, {}), drawn.count(name), seed) for name in dict.fromkeys(drawn)}
    return (next(made[name]) for name in drawn)


def names_in(category: str | None) -> list[str]:
    """Return the generators of a category, except those in `GENEROUS`. None means all categories."""
    datasets = importlib.import_module(f"{PACKAGE}.factory").DATASETS
    category_of = {
        name: datasets[name][0].__module__.split(".")[1] for name in generator_names() if name not in GENEROUS
    }
    if category is not None and category not in category_of.values():
        known = ", ".join(sorted(set(category_of.values())))
        raise DataError(
            f"category '{category}': not a category of reasoning-gym, or its scorers give full marks to wrong "
            f"answers. Choose one of: {known}."
        )
    return [name for name, own in category_of.items() if category in (None, own)]


def made_by(name: str, config: dict[str, Any], count: int, seed: int) -> Iterator[Entry]:
    """Yield the usable questions of one generator, of which about `count` will be used.

    A question is usable if an answer that earns 1 is known. Raises `DataError` after too many unusable questions.
    """
    rejected = 0
    for entry in _questions(name, config, 2 * count + MOST_REJECTED, seed):
        if config:
            entry["metadata"][CONFIG_KEY] = config
        rejected = 0 if _can_be_answered(entry) else rejected + 1
        if not rejected:
            yield entry
        if rejected == MOST_REJECTED:
            raise DataError(
                f"{name}: with {json.dumps(config)}, {MOST_REJECTED} questions in a row have no known full answer. "
                "Change its config."
            )


def _questions(name: str, config: dict[str, Any], size: int, seed: int) -> Iterator[Entry]:
    """Yield questions of one generator without end, from datasets of `size` questions that differ in their seed."""
    for part in itertools.count():
        own_seed = zlib.crc32((f"{seed} {name} {part}" if part else f"{seed} {name}").encode()) % SEEDS
        try:
            package = importlib.import_module(PACKAGE)
            dataset = package.create_dataset(name, **config, seed=own_seed, size=size)
        except Exception as error:
            raise DataError(f"{name}: rejected {json.dumps(config)} ({type(error).__name__}: {error}).") from error
        for index in range(len(dataset)):
            # Seed the global random state, too, because some generators draw from it.
            random.seed(own_seed + index)
            yield plain(dataset[index])


def plain(value: Any) -> Any:
    """Convert a value to JSON types. Integers beyond 64 bits become text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value))
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if value is None or isinstance(value, (bool, float)):
        return value
    return value if isinstance(value, int) and abs(value) < LARGEST_INTEGER else str(value)


def _can_be_answered(entry: Entry) -> bool:
    try:
        answer = answer_to(entry).strip()
        return UNEVALUATED not in answer and score(answer, entry, True) == 1.0
    except (DataError, RowUnusable):
        return False


def main() -> int:
    """Read a JSON request from standard input. Write JSON lines to standard output: the entries, or a problem."""
    # Redirect standard output to standard error, because some generators print.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        try:
            for entry in entries(**json.load(sys.stdin)):
                out.write(json.dumps({"entry": entry}) + "\n")
        except DataError as error:
            out.write(json.dumps({"problem": str(error)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
