"""The command `ng eval events`, which prints the events of a run, also while it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path

from pydantic import Field

from nemo_gym.cli import printing
from nemo_gym.cli.control import POLL_S, REMIND_S, report_killed, waiting_for
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import JsonSettings
from nemo_gym.errors import DataError
from nemo_gym.jsonl import dump_json, dump_line
from nemo_gym.rollouts.control.registry import collections_here
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import (
    Control,
    End,
    Ended,
    Event,
    LedgerReplaced,
    Note,
    Planned,
    Scan,
    Session,
    as_json,
    events_of,
    follow,
)
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.rollouts.run_record import is_running
from nemo_gym.text import counted, decimal, did_you_mean, visible_json

LONGEST_TEXT = 120
"""The number of characters of a longer text, such as a failure's message, that are printed."""
SUMMARY = (
    "Print the events of a run, one per line: ng eval events x.jsonl. With --follow, go on until the collection ends, "
    "and exit with code 1 if it was killed."
)


class EventsSettings(JsonSettings):
    """Parameters of `ng eval events`."""

    output: Path
    """The output of the run, such as x.jsonl."""
    follow: bool = False
    """Go on with the events that are added, until the collection ends."""
    as_json: bool = Field(default=False, alias="json")
    """Print each event as one line of JSON, as it is in the ledger."""


def events(words: list[str]) -> int:
    """Print the events of a run, and with `--follow` those that are added until its collection ends."""
    options = Options("ng eval events", EventsSettings, SUMMARY, takes_config=False, named_by="output")
    settings = options.settings(words)
    files = _files_of(settings.output)
    is_open = False
    for event in Follower(files).events() if settings.follow else events_of(files.results):
        is_open = isinstance(event, Session) or (is_open and not isinstance(event, End))
        if settings.as_json:
            printing.say_document(dump_line(as_json(event)).decode(), visible_json)
        elif line := line_of(event, files):
            printing.say(line)
    return report_killed(files.results) if settings.follow and is_open else 0


def _files_of(output: Path) -> RunFiles:
    """Return the files of the run that `x.jsonl` or `x` names. Raise `DataError` if this output does not exist."""
    for path in (output, output.with_name(f"{output.name}.jsonl")) if output.name else ():
        files = RunFiles(results=path)
        if path.is_file() or files.lock.exists():
            if files.ledger.exists() or files.lock.exists() or (results := _run_with(path)) is None:
                return files
            raise DataError(f"{path}: this file belongs to the run of {results}. Pass {results} instead.")
    results = _run_with(output)
    known = [str(each) for each in _outputs_in(output.parent)]
    hint = f" Did you mean '{results}'?" if results else did_you_mean(str(output.with_suffix(".jsonl")), known)
    raise DataError(f"{output}: this output does not exist.{hint or ' Check the path.'}")


def _run_with(path: Path) -> Path | None:
    """Return the output of the run to which a file or folder belongs, such as `x.jsonl` for `x_run/ledger.jsonl`."""
    for results in chain(_outputs_in(path.parent), _outputs_in(path.parent.parent)):
        files = RunFiles(results=results)
        if path in (files.folder, *files.written) and path != results:
            return results
    return None


def _outputs_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.jsonl")) if RunFiles(results=path).ledger.exists()]


class Follower:
    """A reader of the events of a run, also of those that are added later."""

    def __init__(self, files: RunFiles, *, remind_s: float = REMIND_S) -> None:
        """After `remind_s` seconds without an event, print what is waited for."""
        self._files = files
        self._remind_s = remind_s
        self._last_at = time.monotonic()
        self._looks = 0

    def events(self) -> Iterator[Event]:
        """Yield the events until the collection ends, or until a session ends while its events are followed.

        If a new run replaces the ledger, begin again with its events.
        """
        ledger = self._files.ledger
        while True:
            while not ledger.exists() and is_running(self._files):
                self._wait()
                time.sleep(POLL_S)
            try:
                yield from self._until_the_end()
            except LedgerReplaced:
                printing.note(f"{ledger}: replaced by a new run, whose events follow")
            else:
                return

    def _until_the_end(self) -> Iterator[Event]:
        self._looks = 0
        for event in follow(self._files.results, until=self._is_over):
            self._last_at = time.monotonic()
            yield event
            # An end that is found at the first look may be that of an earlier session.
            if isinstance(event, End) and self._looks > 1:
                return

    def _is_over(self) -> bool:
        """Return whether no further events will be added."""
        self._looks += 1
        self._wait()
        return not is_running(self._files)

    def _wait(self) -> None:
        """Print what is waited for if that takes long. Raise `BrokenPipeError` if the output pipe is closed."""
        printing.check_reader()
        if time.monotonic() - self._last_at > self._remind_s:
            self._last_at = time.monotonic()
            here = (each for each in collections_here() if each.matches(str(self._files.results)))
            collection = next(here, None)
            printing.note(f"waiting for {self._files.results}" if collection is None else waiting_for(collection))


def line_of(event: Event, files: RunFiles) -> str | None:
    """Return an event as a line for people, or None if another line covers it."""
    match event:
        case Session():
            return _line(event, "session", f"process {event.pid} on {event.host}: {_short(' '.join(event.command))}")
        case Planned():
            noun = "rollout" if event.rollouts == 1 else "rollouts"
            return _line(event, "planned", f"{event.rollouts:,} {noun} of {counted(event.tasks, 'task')} planned")
        case Ended():
            return _line(event, "ended", _ended(event))
        case Scan() if event.file != "materialized_inputs":
            return _line(event, "scan", f"{files.with_rows[event.file]} has changed; the next events are of its rows")
        case Control():
            given = "".join(f" {name}={value}" for name, value in event.arguments.items() if value is not None)
            return _line(event, "control", f"{event.verb}{given}: {_short(dump_json(event.answer).decode())}")
        case Note():
            return _line(event, "note", _short(dump_json(event.fields).decode()))
        case End():
            return _line(event, "end", f"{event.state}: {_short(event.reason)}" if event.reason else event.state)
    # `Planned` counts the tasks and replaces their earlier list.
    return None


def _ended(event: Ended) -> str:
    attempt = f" attempt {event.attempt}" if event.attempt else ""
    parts = [f"{event.key}{attempt} {event.outcome}"]
    if event.outcome is Outcome.SCORED and event.reward is not None:
        parts[0] += f" {decimal(event.reward)}"
    elif event.outcome is Outcome.FAILED:
        parts[0] += f" {event.cause}: {_short(event.message or '')}"
    if event.seconds is not None:
        parts.append(f"{event.seconds:.1f} s")
    if event.usage:
        parts.append(f"{sum(tokens.total for tokens in event.usage.values()):,} tokens")
    return ", ".join(parts)


def _line(event: Session | Planned | Ended | Scan | Control | Note | End, kind: str, text: str) -> str:
    return f"{datetime.fromtimestamp(event.at):%Y-%m-%d %H:%M:%S}  {kind:<7}  {text}"


def _short(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:LONGEST_TEXT]}…"
