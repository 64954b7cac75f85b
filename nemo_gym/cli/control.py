"""Commands that list the running collections, control one of them, and wait for its end."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, PositiveInt

from nemo_gym.cli import printing
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import CommandSettings, JsonSettings
from nemo_gym.errors import DataError, UsageError
from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.calling import NotListening, StartingOrEnding, ask, ended, find
from nemo_gym.rollouts.control.control import Refused
from nemo_gym.rollouts.control.listening import VERBS
from nemo_gym.rollouts.control.registry import Collection, collections_here
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.progress import clock
from nemo_gym.rollouts.run_record import RunRecord, read_record
from nemo_gym.text import counted, decimal, did_you_mean

STATUS_S = 2.0
"""Seconds to wait for the status of a collection, for example in `ng eval ps`."""
START_S = 120.0
"""Seconds that a verb other than `status` waits while a collection starts or ends."""
POLL_S = 0.5
REMIND_S = 30.0
TIMED_OUT = 124
"""The exit code after a timeout, the same as that of the program `timeout`."""

CTL = """Control a running collection: ng eval ctl RUN VERB.

RUN is its output or its id (`ng eval ps` lists both), and may be left out if there is only one. VERB is one of:
  status                     print the outcomes so far and the rollouts that have been running for longest
  pause                      start no further rollout; running ones go on
  resume                     start rollouts again
  concurrency N|auto         run N rollouts at once, or as many as raise the throughput
  cancel TASK[:REPEAT]       end rollouts of a task as failed, running or not started
  requeue [TASK[:REPEAT]]    run rollouts without a score again: all (--failed), or those of a task
  drain                      start no further rollout, and end when the running ones have ended
  stop                       end now; running rollouts stay unresolved

While the collection starts or ends, verbs other than status wait up to two minutes. Giving a verb twice has the same
effect as once. The run's record lists all verbs that were given."""


class CtlSettings(JsonSettings):
    """Parameters of `ng eval ctl`."""

    words: list[str] = Field(default_factory=list)
    """The run, the verb, and the argument of the verb."""
    failed: bool = False
    """For requeue: run all rollouts without a score again, as requeue does if no task is given."""


class WaitSettings(CommandSettings):
    """Parameters of `ng eval wait`."""

    run: str | None = None
    """The output or the id of the collection. Default: the only running collection."""
    timeout_s: PositiveInt | None = None
    """Give up after this many seconds, with exit code 124. Default: wait until the collection ends."""


def ps(words: list[str]) -> int:
    """List the running collections of this user on this machine."""
    settings = Options("ng eval ps", JsonSettings, takes_config=False).settings(words)
    found = [_described(each) for each in collections_here()]
    if settings.as_json:
        printing.say_json(found)
    elif found:
        # Import the tables here, because the other commands of this module do not need them.
        from nemo_gym.cli import tables

        tables.show(tables.collections(found))
    else:
        printing.say("no collection is running")
    return 0


def _described(collection: Collection) -> JsonObject:
    known = {
        "run_id": collection.run_id, "output": str(collection.output), "pid": collection.pid,
        "seconds": round(time.time() - collection.started_at, 1),
    }  # fmt: skip
    try:
        return known | ask(collection, "status", timeout_s=STATUS_S)
    except (NotListening, Refused):
        return known | {"state": "starting or ending"}


def ctl(words: list[str]) -> int:
    """Send one request, such as `pause`, to a running collection, and print the answer."""
    settings = Options("ng eval ctl", CtlSettings, CTL, takes_config=False, named_by="words").settings(words)
    run, verb, rest = _parts(settings.words)
    arguments = _arguments(verb, rest, is_failed=settings.failed)
    collection = find(run)
    answer = _ask_once_ready(collection, verb, arguments)
    if settings.as_json:
        printing.say_json(answer)
    elif verb == "status":
        for line in _status_lines(collection, answer):
            printing.say(line)
    else:
        printing.say(f"{collection.output}: {_outcome(verb, answer)}")
    return 0


def _ask_once_ready(collection: Collection, verb: str, arguments: Mapping[str, object]) -> JsonObject:
    """Send a request and return the answer. While the collection starts or ends, wait up to `START_S` seconds.

    Raise the errors of `ask`, and `NotListening` if the collection ends first.
    """
    give_up_at = time.monotonic() + START_S
    has_noted = False
    while True:
        try:
            return ask(collection, verb, arguments)
        except StartingOrEnding:
            if verb == "status" or time.monotonic() > give_up_at:
                raise
        if not collection.is_running:
            raise ended(collection)
        if not has_noted:
            has_noted = True
            process = f"process {collection.pid}, which is starting or ending"
            printing.note(f"{collection.output}: waiting up to {START_S:g} s for {process}")
        time.sleep(POLL_S)


class _Parts(NamedTuple):
    run: str | None
    verb: str
    arguments: list[str]


def _parts(words: Sequence[str]) -> _Parts:
    for place, word in enumerate(words[:2]):
        if word in VERBS:
            return _Parts(words[0] if place else None, word, list(words[place + 1 :]))
    if not words:
        raise UsageError(f"ng eval ctl needs a verb: {', '.join(VERBS)}.")
    given = words[1] if len(words) > 1 else words[0]
    raise UsageError(f"'{given}' is not a verb.{did_you_mean(given, VERBS)} The verbs are {', '.join(VERBS)}.")


def _arguments(verb: str, words: Sequence[str], *, is_failed: bool) -> Mapping[str, object]:
    if is_failed and (verb != "requeue" or words):
        raise UsageError("--failed can be used only with requeue, and not together with a task.")
    most = 1 if verb in ("concurrency", "cancel", "requeue") else 0
    if len(words) > most:
        raise UsageError(f"{verb}: unexpected argument '{words[most]}'. Remove it.")
    if verb == "concurrency":
        return {"wanted": _concurrency(words)}
    if words:
        return _address(words[0])
    if verb == "cancel":
        raise UsageError("cancel needs a task, such as 12, or one of its repeats, such as 12:3.")
    return {}


def _concurrency(words: Sequence[str]) -> int | None:
    if words == ["auto"]:
        return None
    if not words or not re.fullmatch(r"0*[1-9]\d{0,8}", words[0]):
        raise UsageError("concurrency needs a number of at least 1, or auto. To start no further rollout, use pause.")
    return int(words[0])


def _address(word: str) -> dict[str, int | None]:
    """Return a task, and one of its repeats. Without a repeat, the request is for all of them."""
    found = re.fullmatch(r"(\d{1,12})(?::(\d{1,12}))?", word)
    if found is None:
        raise UsageError(f"'{word}' is not a task, such as 12, or one of its repeats, such as 12:3.")
    return {"task": int(found[1]), "repeat": int(found[2]) if found[2] else None}


def _outcome(verb: str, answer: JsonObject) -> str:
    again = "" if answer.get("changed", True) else "already "
    match verb:
        case "pause":
            return f"{again}paused"
        case "resume":
            return "resumed" if not again else "not paused"
        case "concurrency":
            return f"{again}at most {answer['concurrency']} rollouts at once"
        case "cancel":
            return f"cancelled; this interrupted {counted(answer['running'], 'rollout')} of the task"
        case "requeue":
            return f"{counted(answer['requeued'], 'rollout')} will run again"
        case "drain":
            return f"{again}draining: {counted(answer['running'], 'rollout')} still running"
    return f"stopping; {counted(answer['running'], 'rollout')} will stay unresolved"


def _status_lines(collection: Collection, status: JsonObject) -> list[str]:
    mean, left_s = status["mean_reward"], status["left_s"]
    failed = sum(status["failed"].values())
    causes = ", ".join(f"{count} {cause}" for cause, count in status["failed"].items())
    of_causes = f" ({causes})" if causes else ""
    limit = f"{status['concurrency']}{' (auto)' if status['is_adaptive'] else ''}"
    lines = [
        f"{collection.output} ({collection.run_id}), process {collection.pid}: {status['state']}",
        f"{status['planned']} planned = {status['scored']} scored + {failed} failed{of_causes} + "
        f"{status['unresolved']} unresolved",
        f"{status['running']} running of at most {limit}, {status['rollouts_per_s']:g} per second, mean reward "
        f"{'–' if mean is None else decimal(mean)}{'' if left_s is None else f', {clock(left_s)} left'}",
    ]
    if status["longest"]:
        shown = ", ".join(f"{each['task']}:{each['repeat']} ({each['seconds']:.0f} s)" for each in status["longest"])
        lines.append(f"running for longest: {shown}")
    return lines


def wait(words: list[str]) -> int:
    """Wait until a collection ends, and return its exit code."""
    summary = "Wait until a collection has ended, and exit with its exit code."
    settings = Options("ng eval wait", WaitSettings, summary, takes_config=False, named_by="run").settings(words)
    try:
        collection = find(settings.run)
    except NotListening:
        if settings.run is None or (record := _record_of(Path(settings.run))) is None:
            raise
        return _exit_code(Path(settings.run), record)
    began_at = reminded_at = time.monotonic()
    while collection.is_running:
        time.sleep(POLL_S)
        now = time.monotonic()
        if settings.timeout_s is not None and now - began_at > settings.timeout_s:
            printing.note(f"{collection.output}: still running after {settings.timeout_s} s")
            return TIMED_OUT
        if now - reminded_at > REMIND_S:
            reminded_at = now
            printing.note(waiting_for(collection))
    record = read_record(collection.files.record)
    if record is None:
        raise DataError(
            f"{collection.files.record}: this file is missing or unreadable, so the outcome of the collection is "
            "unknown. Continue the collection with --resume."
        )
    return _exit_code(collection.output, record)


def _record_of(path: Path) -> RunRecord | None:
    files = RunFiles(results=path if path.suffix == ".jsonl" else path.with_suffix(".jsonl"))
    return read_record(files.record)


def waiting_for(collection: Collection) -> str:
    """Return a line that says what a command waits for."""
    status = _described(collection)
    done = str(status["state"])
    if "planned" in status:
        ended = status["planned"] - status["unresolved"]
        done = f"{ended} of {status['planned']} rollouts have ended (state: {done})"
    return f"waiting for {collection.output} (process {collection.pid}): {done}"


def _exit_code(output: Path, record: RunRecord) -> int:
    if record.exit_code is not None:
        printing.note(f"{output}: {record.state}{f' ({record.reason})' if record.reason else ''}")
        return record.exit_code
    return report_killed(output)


def report_killed(output: Path) -> int:
    """Print an error about a collection that did not record its end, and return the exit code."""
    printing.note(f"Error: {output}: the collection was killed before it recorded its end. --resume continues it.")
    return 1
