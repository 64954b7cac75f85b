"""What the terminal hears of failures: each distinct one as it first comes, and their counts at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nemo_gym.rollouts.outcome import Record
from nemo_gym.schemas.rollout import FAILURE_MESSAGE_KEY, FAILURE_SERVER_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY

MOST_TOLD = 20
"""What fails in ever new ways is counted beyond these, and no longer told."""
LONGEST_MESSAGE = 400

_NUMBER = re.compile(r"\d+(\.\d+)?|\b[0-9a-f]{8,}\b")


class _Kind(NamedTuple):
    cause: str
    server: str | None
    shape: str
    """The message without its numbers: the same failure has others each time."""


@dataclass
class _Told:
    message: str
    count: int = 0


class FaultNews:
    """Takes the records of a run; `say` hears of each kind of failure once, as it happens."""

    def __init__(self, say: Callable[[str], None], *, mask: Callable[[str], str] = str) -> None:
        """`mask` hides secrets in what was said of a failure."""
        self._say = say
        self._mask = mask
        self._kinds: dict[_Kind, _Told] = {}
        self._others = 0

    def take(self, record: Record) -> None:
        """One more rollout has ended."""
        if record.cause is None:
            return
        message = _line(self._mask(str(record.row.get(FAILURE_MESSAGE_KEY) or "no message")))
        kind = _Kind(record.cause, record.row.get(FAILURE_SERVER_KEY), _NUMBER.sub("#", message))
        if kind not in self._kinds:
            if len(self._kinds) >= MOST_TOLD:
                self._others += 1
                return
            self._kinds[kind] = _Told(message)
            which = f"repeat {record.row.get(ROLLOUT_INDEX_KEY)} of task {record.row.get(TASK_INDEX_KEY)}"
            self._say(f"{record.cause}, {which}: {message}")
        self._kinds[kind].count += 1

    def lines(self) -> Iterable[str]:
        """Of each kind, how often it struck and what the first of them said; the most frequent one first."""
        for kind, told in sorted(self._kinds.items(), key=lambda each: -each[1].count):
            yield f"  {told.count} {kind.cause}, the first: {told.message}"
        if self._others:
            yield f"  {self._others} of further kinds"


def _line(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"
