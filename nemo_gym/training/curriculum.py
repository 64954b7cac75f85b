"""An endless source of rows that learns from the rewards which tasks still teach something."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nemo_gym.errors import DataError, UsageError
from nemo_gym.jsonl import JsonObject, dump_json, line_digest
from nemo_gym.training.group import Group

State = Literal["new", "mixed", "solved", "unsolved"]
VERSION = 1


@dataclass
class _Task:
    """What is known of one row."""

    state: State = "new"
    flat: int = 0
    """The number of groups in a row whose rewards were all equal."""
    ticket: int = 0
    """The number of its latest place in `_waiting` or `_resting`. Earlier places do not count."""


class _Place(NamedTuple):
    """The place of a task among those that wait or rest."""

    at: int
    """The number of the draw from which on it waits."""
    task: int
    """The index of its row."""
    ticket: int


class Curriculum(Iterator[JsonObject]):
    """Rows for `TrainingClient.rollouts`, which reports each group back.

    A task whose rewards differ within its group is *mixed*: it teaches something, and is drawn again soon. A task that
    is always or never solved rests, twice as long after each further time, and is then tried again. The same seed and
    the same reports give the same rows.
    """

    def __init__(
        self,
        rows: Iterable[JsonObject],
        *,
        seed: int = 0,
        new: float = 0.5,
        rest: int = 200,
        solved: float = 1.0,
        priority: Callable[[JsonObject], float] = lambda row: 1.0,
    ) -> None:
        """Configure the source.

        `new` is the share of rows that were not tried yet or have rested, while there are mixed ones. `rest` is the
        number of draws for which a task rests at first. A task without mixed rewards counts as solved if they are at
        least `solved`. `priority` returns a row's weight: new rows with a higher one tend to come earlier, and mixed
        ones come more often.

        Raises `DataError` without rows and for equal ones, and `UsageError` for other values.
        """
        self._rows = list(rows)
        if not self._rows:
            raise DataError("rows is empty. A curriculum needs at least one row.")
        if not 0 < new <= 1 or rest < 1:
            raise UsageError(f"new={new:g}, rest={rest}: new must be above 0 and at most 1, and rest at least 1.")
        self._index_of = {_digest(row): index for index, row in enumerate(self._rows)}
        if len(self._index_of) < len(self._rows):
            raise DataError("rows contains equal rows. Remove the copies, because rewards are counted by row.")
        self._weights = [_weight(priority(row), index) for index, row in enumerate(self._rows)]
        self._heaviest = max(self._weights)
        self._new_share, self._rest, self._solved = new, rest, solved
        self._random = random.Random(seed)
        self._tasks = [_Task() for _ in self._rows]
        # A weighted shuffle: a key is the larger the earlier it is likely to come.
        keys = {index: self._random.random() ** (1 / weight) for index, weight in enumerate(self._weights)}
        order = sorted(keys, key=keys.__getitem__, reverse=True)
        self._waiting = deque(_Place(0, index, 0) for index in order)
        self._resting: list[_Place] = []
        """A heap of the tasks that rest, and of those that have been drawn and not reported."""
        self._mixed: list[int] = []
        self._draws = 0

    def __next__(self) -> JsonObject:
        self._draws += 1
        while self._resting and (self._resting[0].at <= self._draws or not self._is_current(self._resting[0])):
            self._waiting.append(heapq.heappop(self._resting))
        while self._waiting and not self._is_current(self._waiting[0]):
            self._waiting.popleft()
        is_new = self._random.random() < self._new_share
        if self._mixed and not (self._waiting and is_new):
            return self._rows[self._one_of_mixed()]
        # If all tasks rest, the next one wakes up early.
        index = (self._waiting.popleft() if self._waiting else heapq.heappop(self._resting)).task
        # The task must not come again before its group is reported, unless the report never comes.
        self._let_rest(index, self._rest)
        return self._rows[index]

    def report(self, group: Group) -> None:
        """Note the rewards of a group. One without rewards, because all rollouts failed, says nothing."""
        index = self._index_of.get(_digest(group.row))
        if index is None or not group.rewards:
            return
        task, was_mixed = self._tasks[index], self._tasks[index].state == "mixed"
        if group.std > 0:
            task.state, task.flat = "mixed", 0
            if not was_mixed:
                task.ticket += 1
                self._mixed.append(index)
            return
        if was_mixed:
            self._mixed.remove(index)
        task.state = "solved" if group.rewards[0] >= self._solved else "unsolved"
        self._let_rest(index, self._rest * 2 ** min(task.flat, 16))
        task.flat += 1

    @property
    def counts(self) -> Counter[State]:
        """The number of tasks that are `new`, `mixed`, always `solved` or never (`unsolved`), by their last groups."""
        return Counter(task.state for task in self._tasks)

    def state_dict(self) -> JsonObject:
        """Return all that is known, as JSON, for `load_state_dict` of a curriculum with the same rows."""
        version, numbers, gauss = self._random.getstate()
        return {
            "version": VERSION,
            "rows": _digest([*self._index_of]),
            "draws": self._draws,
            "random": [version, list(numbers), gauss],
            "waiting": [list(place) for place in self._waiting],
            "resting": [list(place) for place in self._resting],
            "mixed": list(self._mixed),
            "tasks": [[task.state, task.flat, task.ticket] for task in self._tasks],
        }

    def load_state_dict(self, state: JsonObject) -> None:
        """Continue from a state. Raise `DataError` if it is that of other rows."""
        if state.get("version") != VERSION or state.get("rows") != _digest([*self._index_of]):
            raise DataError("the state of the curriculum belongs to other rows. Pass those with which it was saved.")
        version, numbers, gauss = state["random"]
        self._random.setstate((version, tuple(numbers), gauss))
        self._draws = state["draws"]
        self._waiting = deque(_Place(*place) for place in state["waiting"])
        self._resting = [_Place(*place) for place in state["resting"]]
        self._mixed = list(state["mixed"])
        self._tasks = [_Task(*known) for known in state["tasks"]]

    def _one_of_mixed(self) -> int:
        while True:
            index = self._random.choice(self._mixed)
            if self._random.random() * self._heaviest < self._weights[index]:
                return index

    def _let_rest(self, index: int, draws: int) -> None:
        task = self._tasks[index]
        task.ticket += 1
        heapq.heappush(self._resting, _Place(self._draws + draws, index, task.ticket))

    def _is_current(self, place: _Place) -> bool:
        return self._tasks[place.task].ticket == place.ticket


def _digest(value: object) -> str:
    return line_digest(dump_json(value, sorts_keys=True)).hex()


def _weight(weight: float, index: int) -> float:
    if not math.isfinite(weight) or weight <= 0:
        raise UsageError(f"priority of rows[{index}] is {weight}. It must be a positive number.")
    return float(weight)
