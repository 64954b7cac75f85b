"""Progress of a collection: a progress bar in a terminal, otherwise one line per 10 % of the pending rollouts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TextIO

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.text import decimal


class Progress:
    """The progress display of a run, with rate, mean reward, failures and remaining time."""

    def __init__(self, summary: Summary, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._total = summary.planned
        self._next_tenth = 1
        self._summary = summary
        self._bar = _bar(self._total, stream, self._state) if stream.isatty() else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, record: Record, summary: Summary) -> None:
        self._summary = summary
        # Print one line per 10 % of the rollouts that were pending at the start. Do not count earlier rollouts,
        # because they could trigger a line before any rollout of this session has ended.
        done, owed = summary.finished - summary.finished_earlier, max(1, self._total - summary.finished_earlier)
        # A bar needs no update here, because it redraws itself ten times a second.
        if self._bar is None and done * 10 >= self._next_tenth * owed:
            self._next_tenth = done * 10 // owed + 1
            words = self._words(summary)
            print(
                f"{summary.finished}/{self._total} rollouts ({summary.finished * 100 // self._total} %), "
                f"{words['rate']}, {words['reward']}, {words['failures']}, {words['left']}",
                file=self._stream,
                flush=True,
            )

    def _state(self) -> JsonObject:
        return {"completed": self._summary.finished - self._summary.never_ended, **self._words(self._summary)}

    def _words(self, summary: Summary) -> dict[str, str]:
        mean = summary.mean_reward
        return {
            "rate": f"{summary.rate:,.1f}/s",
            "reward": "mean reward –" if mean is None else f"mean reward {decimal(mean)}",
            "failures": f"{summary.failed} failed",
            "left": f"{clock(summary.left_s or 0.0)} left",
        }


def clock(seconds: float) -> str:
    """Return `0:05` or `1:23:45`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(total: int, stream: TextIO, state: Callable[[], JsonObject]) -> Any:
    # Importing rich takes 0.1 s, and only a terminal needs it.
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    class Bar(RichProgress):
        """A progress bar that reads the current state whenever it is drawn."""

        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.task_ids:
                self.update(task, **state())
            yield from super().get_renderables()

    bar = Bar(
        TextColumn("[bold]rollouts"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        *(TextColumn(f"{{task.fields[{field}]}}") for field in ("rate", "reward", "failures", "left")),
        console=Console(file=stream),
    )
    bar.add_task("", total=total, rate="", reward="", failures="", left="")
    return bar
