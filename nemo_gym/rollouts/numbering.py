"""Numbers for the tasks and repeats of an input's lines."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import islice

from nemo_gym.schemas.row import TaskKey

HIGH_BITS = 4
"""The number of high bits by which values are partitioned, because sorting all at once takes more memory."""


class TaskNumbers:
    """Task numbers in the order of first appearance. The repeats of each task are numbered from 0.

    Identical lines belong to the same task, and so do rows with the same `_ng_task_index`. New numbers avoid the
    indices that rows contain. Only duplicates are remembered: a row takes eight bytes while the input is checked, and
    no memory afterwards if it is unique.
    """

    def __init__(self, digests: array[int], given: array[int], rollouts: int = 0) -> None:
        self.rows = len(digests) + len(given)
        self.rollouts = rollouts
        """The number of repeats of all rows."""
        self._repeated = _duplicates(digests)
        self._repeated_given = _duplicates(given)
        self.taken: frozenset[int] = frozenset(given) if digests else frozenset()
        """The task indices that rows contain. Empty if all rows contain one: no new number is needed then."""
        self.begin_again()

    def begin_again(self) -> None:
        """Start over at the first line of the file."""
        self._index_of_line: dict[int, int] = {}
        self._repeats_taken: dict[int, int] = {}
        self._next = 0

    def take(self, raw: bytes, given: int | None, repeats: int) -> TaskKey:
        """Return the task index of the next row and the row's first repeat number.

        `given` is the task index that the row itself has, if any.
        """
        if given is not None:
            return TaskKey(given, self._first_repeat(given, repeats) if given in self._repeated_given else 0)
        digest = digest_of(raw)
        if digest not in self._repeated:
            return TaskKey(self._new_index(), 0)
        task = self._index_of_line.get(digest)
        if task is None:
            task = self._index_of_line[digest] = self._new_index()
        return TaskKey(task, self._first_repeat(task, repeats))

    def _new_index(self) -> int:
        while self._next in self.taken:
            self._next += 1
        self._next += 1
        return self._next - 1

    def _first_repeat(self, task: int, repeats: int) -> int:
        first = self._repeats_taken.get(task, 0)
        self._repeats_taken[task] = first + repeats
        return first


def in_order(values: Iterable[int]) -> array[int]:
    """Return the 64-bit values sorted. This takes a tenth of the memory that a list would take."""
    parts = [array("Q") for _ in range(1 << HIGH_BITS)]
    for value in values:
        parts[value >> (64 - HIGH_BITS)].append(value)
    ordered = array("Q")
    while parts:
        ordered.extend(array("Q", sorted(parts.pop(0))))
    return ordered


def _duplicates(values: array[int]) -> set[int]:
    ordered = in_order(values)
    return {left for left, right in zip(ordered, islice(ordered, 1, None), strict=False) if left == right}


def digest_of(raw: bytes) -> int:
    """Return a 64-bit digest of a line."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
