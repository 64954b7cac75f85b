"""Which task a line is, and which of its repeats come next."""

from __future__ import annotations

import hashlib
from array import array
from itertools import islice


class TaskNumbers:
    """Numbers tasks in the order of first appearance, and the repeats of each from 0.

    Identical lines are one task, and so are rows that bring the same index; no row without an index gets one that
    another row brings. Only what occurs more than once is remembered: a file of a million different rows costs eight
    bytes each while it is checked, and nothing afterwards.
    """

    def __init__(self, digests: array[int], given: array[int]) -> None:
        self._repeated = _duplicates(digests)
        self._repeated_given = _duplicates(given)
        self._taken = frozenset(given) if digests else frozenset()
        self._index_of_line: dict[int, int] = {}
        self._repeats_taken: dict[int, int] = {}
        self._next = 0

    def take(self, raw: bytes, given: int | None, repeats: int) -> tuple[int, int]:
        """The task of the next line, and the first of its repeats; `given` is the index that the row brings."""
        if given is not None:
            return given, self._first_repeat(given, repeats) if given in self._repeated_given else 0
        digest = digest_of(raw)
        if digest not in self._repeated:
            return self._new_index(), 0
        task = self._index_of_line.get(digest)
        if task is None:
            task = self._index_of_line[digest] = self._new_index()
        return task, self._first_repeat(task, repeats)

    def _new_index(self) -> int:
        while self._next in self._taken:
            self._next += 1
        self._next += 1
        return self._next - 1

    def _first_repeat(self, task: int, repeats: int) -> int:
        first = self._repeats_taken.get(task, 0)
        self._repeats_taken[task] = first + repeats
        return first


def _duplicates(values: array[int]) -> set[int]:
    ordered = sorted(values)
    return {left for left, right in zip(ordered, islice(ordered, 1, None), strict=False) if left == right}


def digest_of(raw: bytes) -> int:
    """64 bits that stand for a line."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
