"""Failure messages for the terminal: each kind of failure once as it happens, and counts at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nemo_gym.errors import InvalidTask
from nemo_gym.rollouts.outcome import Record, shape_of
from nemo_gym.schemas.row import Row

MOST_KINDS = 20
"""The maximum number of kinds to print; failures of further kinds are only counted."""
LONGEST_MESSAGE = 400


class _Kind(NamedTuple):
    cause: str
    server: str | None
    shape: str


@dataclass
class _Occurrences:
    message: str
    count: int = 0


class FailureReporter:
    """A reporter of a run's failures. It calls `say` with the first failure of each kind, up to `MOST_KINDS` kinds."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        mask: Callable[[str], str] = str,
        place_of: Callable[[Row], str | None] = lambda row: None,
    ) -> None:
        """Initialise the reporter. `mask` hides secrets; `place_of` returns the file and line of an invalid row."""
        self._say = say
        self._mask = mask
        self._place_of = place_of
        self._kinds: dict[_Kind, _Occurrences] = {}
        self._others = 0

    def take(self, record: Record) -> None:
        """Count the failure of a record, if any. Report the first failure of each kind, up to `MOST_KINDS` kinds."""
        if record.cause is None:
            return
        whole = " ".join(self._mask(record.row.failure_message or "no message").split())
        # Remove quoted values before the message is shortened, because a shortened value may lack its closing quote.
        shape = _shortened(shape_of(whole))
        kind, message = _Kind(record.cause, record.row.failure_server, shape), _shortened(whole)
        if kind not in self._kinds:
            if len(self._kinds) >= MOST_KINDS:
                self._others += 1
                return
            if record.cause == InvalidTask.failure_class and (place := self._place_of(record.row)):
                message = f"{place}: {message}"
            if log := record.row.failure_log:
                message = f"{message} (log: {log})"
            self._kinds[kind] = _Occurrences(message)
            which = f"repeat {record.row.repeat_index} of task {record.row.task_index}"
            self._say(f"{record.cause}, {which}: {message}")
        self._kinds[kind].count += 1

    def lines(self) -> Iterable[str]:
        """Yield each kind's count and first message, the most frequent kind first."""
        for kind, seen in sorted(self._kinds.items(), key=lambda each: -each[1].count):
            yield f"  {seen.count} {kind.cause}, the first: {seen.message}"
        if self._others:
            yield f"  {self._others} of other kinds"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"
