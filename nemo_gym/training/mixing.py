"""Mix the rows of several environments into one endless stream, in which each environment has a fixed share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count

from nemo_gym.errors import DataError, UsageError
from nemo_gym.jsonl import JsonObject
from nemo_gym.text import did_you_mean_or_all


def mixed(
    sources: Mapping[str, Iterable[JsonObject]], shares: Mapping[str, float], seed: int = 0
) -> Iterator[JsonObject]:
    """Return an endless iterator of rows in which each source has its share.

    The first n rows contain n times the share of each source, give or take less than one row. So if the batch size
    times the share is a whole number for each source, each batch has exactly these numbers of rows.

    Shares are relative: 2 and 1 mean two thirds and one third. Each source is shuffled again whenever all of its rows
    have been used. The same seed gives the same rows.

    A row without an `agent_ref` gets the name of its source as its agent.

    Raises `UsageError` for invalid shares and `DataError` for a source without rows.
    """
    weights = _checked(shares, sources)
    streams = {name: _epochs(_rows_of(name, sources[name]), random.Random(f"{seed} {name}")) for name in weights}
    return (next(streams[name]) for name in _order(weights))


def _checked(shares: Mapping[str, float], sources: Mapping[str, object]) -> dict[str, Fraction]:
    """Return the shares that are not 0, scaled to a sum of 1. Raise `UsageError` if a share is missing or invalid."""
    for name in shares:
        if name not in sources:
            raise UsageError(
                f"shares: '{name}' is not one of the sources.{did_you_mean_or_all(name, sources, 'sources')}"
            )
    for name in sources:
        if name not in shares:
            raise UsageError(f"shares: source '{name}' has no share. Add one; 0 leaves the source out.")
        share = shares[name]
        if not isinstance(share, int | float) or not math.isfinite(share) or share < 0:
            raise UsageError(f"shares['{name}'] is {share!r}. A share must be a finite number of at least 0.")
    # Use fractions, because rounding errors of floats would add up over millions of rows.
    weights = {name: Fraction(share) for name, share in shares.items() if share > 0}
    total = sum(weights.values())
    if not total:
        raise UsageError(f"shares: all {len(shares)} shares are 0. At least one must be positive.")
    return {name: weight / total for name, weight in weights.items()}


def _rows_of(name: str, given: Iterable[JsonObject]) -> list[JsonObject]:
    rows = [row if "agent_ref" in row else {**row, "agent_ref": {"name": name}} for row in given]
    if not rows:
        raise DataError(f"sources['{name}'] has no rows. Add rows, or set its share to 0.")
    return rows


def _epochs(rows: Sequence[JsonObject], rng: random.Random) -> Iterator[JsonObject]:
    while True:
        yield from rng.sample(rows, len(rows))


def _order(weights: Mapping[str, Fraction]) -> Iterator[str]:
    """Yield the source of each row. The number of a source's rows always differs from its share by less than one.

    A source's k-th row may come at position floor(k / share) or later, and must come before position
    (k + 1) / share. Rows and positions count from 0. Choosing the source with the earliest deadline keeps these bounds
    for all sources.
    """
    taken = dict.fromkeys(weights, 0)
    for place in count(1):
        begun = [name for name in weights if taken[name] < weights[name] * place]
        name = min(begun, key=lambda each: math.ceil((taken[each] + 1) / weights[each]))
        taken[name] += 1
        yield name
