"""The command `ng eval show`, which prints rollouts as conversations."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveInt

from nemo_gym.cli import printing
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import JsonSettings
from nemo_gym.errors import DataError, UsageError
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.text import counted, visible_json
from nemo_gym.training.conditions import Condition
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.place import Place
from nemo_gym.viewer.index.run_index import Score
from nemo_gym.viewer.library import Library, RunView, library_of
from nemo_gym.viewer.rollout import ITEMS_BYTES, place_of, rollout_json, shown_at
from nemo_gym.viewer.transcript import Line, Output, Transcript

USUAL_LIMIT = 5
MOST_NAMED = 10
QUIET_S = 2.0
"""Seconds of indexing after which a message is printed."""
INDEXING_S = 1800.0
CHOICES = "--task N, --repeat N, --worst N, --best N, --failed or --where 'reward < 0.5'"


class ShowSettings(JsonSettings):
    """Parameters of `ng eval show`."""

    paths: list[Path] = Field(default_factory=list)
    """The file of rollouts, or a folder with one run."""
    task: NonNegativeInt | None = None
    """Print only the rollouts of this task."""
    repeat: NonNegativeInt | None = None
    """Print only this repeat of each task."""
    attempt: NonNegativeInt | None = None
    """Print this attempt of the rollout given by --task and --repeat. Default: the scored attempt, else the last."""
    worst: PositiveInt | None = None
    """Print this many scored rollouts with the lowest rewards, the lowest first."""
    best: PositiveInt | None = None
    """Print this many scored rollouts with the highest rewards, the highest first."""
    failed: bool = False
    """Print only failed rollouts."""
    where: str | None = None
    """Print only scored rollouts (with --failed, failed ones) that fulfil this condition, such as 'reward < 0.5'."""
    limit: PositiveInt | None = None
    """Print at most this many rollouts, in task order. Default: 5; with --task, --worst or --best, all of them."""
    full: bool = False
    """Print up to 64 KiB of each long text, and the lines of the log around a failure."""
    as_json: bool = Field(default=False, alias="json")
    """Print the rollouts as JSON lines, exactly as stored in the files."""


def show(words: list[str]) -> int:
    summary = (
        "Print rollouts as conversations: ng eval show RESULTS.jsonl. Without a choice, print the first five. Failed "
        "attempts and rollouts that have not ended are found, too."
    )
    options = Options("ng eval show", ShowSettings, summary, takes_config=False, named_by="paths")
    settings = options.settings(words)
    _check(settings)
    with closing(library_of(settings.paths)) as library:
        view = _only_run(library, settings.paths[0])
        _index(view)
        return _show(view, settings)


def _show(view: RunView, settings: ShowSettings) -> int:
    scores = _ordered(_chosen(view, settings), settings)
    limit = settings.limit or (None if settings.task is not None or settings.worst or settings.best else USUAL_LIMIT)
    places = [place_of(view, score.key, settings.attempt) for score in islice(scores, limit)]
    try:
        _print(view, places, settings)
    except BrokenPipeError:
        # Stop without an error, because the reader of the pipe, such as `head`, has closed it.
        printing.discard_output()
    if not places:
        total = counted(view.index.select(Filter(), limit=0).total, "rollout")
        printing.note(f"{view.files.results}: none of its {total} matches the given options.")
    elif more := sum(1 for _ in scores):
        shown = f"printed {len(places)} of {counted(len(places) + more, 'rollout')}"
        printing.note(f"{view.files.results}: {shown}. Choose others with {CHOICES}; --limit N prints more.")
    return 0


def _check(settings: ShowSettings) -> None:
    if len(settings.paths) != 1:
        raise UsageError(f"paths: name one file of rollouts, such as results/x.jsonl (got {len(settings.paths)}).")
    if settings.worst and settings.best:
        raise UsageError("--worst and --best: pass only one of them.")
    if settings.failed and (settings.worst or settings.best):
        raise UsageError("--failed: failed rollouts have no reward, so --worst and --best cannot order them.")
    if settings.where is not None:
        try:
            Condition(settings.where)
        except ValueError as error:
            raise UsageError(f"--where: {error}.") from error
    if settings.attempt is not None and (settings.task is None or settings.repeat is None):
        raise UsageError("--attempt: the attempts belong to one rollout, so --task and --repeat are needed, too.")


def _only_run(library: Library, path: Path) -> RunView:
    runs = library.runs()
    if len(runs) > 1:
        names = ", ".join(str(each.files.results) for each in runs[:MOST_NAMED])
        more = ", …" if len(runs) > MOST_NAMED else ""
        raise DataError(f"{path}: {len(runs)} runs are in this folder. Name one of them: {names}{more}.")
    return runs[0]


def _index(view: RunView) -> None:
    """Wait until the run is indexed, and print the problems of its files."""
    view.refresh(wait_s=QUIET_S)
    known = view.as_json()
    if known["indexed"]["bytes"] < known["indexed"]["of"]:
        size_mb = known["indexed"]["of"] / 1e6
        printing.note(f"{view.files.results}: indexing {size_mb:,.0f} MB, at most {INDEXING_S / 60:.0f} minutes …")
        view.refresh(wait_s=INDEXING_S)
        known = view.as_json()
    for problem in known["problems"]:
        line = "" if problem["line"] is None else f":{problem['line']}"
        printing.note(f"warning: {problem['file']}{line}: {problem['message']}")


def _chosen(view: RunView, settings: ShowSettings) -> Iterator[Score]:
    """Return the rollouts that the settings select, ordered by task and repeat.

    Raise `DataError` if the task or the repeat does not exist.
    """
    needs_scores = bool(settings.worst or settings.best or settings.where)
    numbers = Filter(
        task=() if settings.task is None else (settings.task,),
        repeat=() if settings.repeat is None else (settings.repeat,),
    )
    if numbers != Filter() and next(view.index.scores(numbers), None) is None:
        raise DataError(_unknown(view, settings))
    outcomes = (Outcome.FAILED,) if settings.failed else (Outcome.SCORED,) if needs_scores else ()
    chosen = replace(numbers, outcome=outcomes)
    return view.index.scores(chosen) if settings.where is None else _where(view, chosen, settings.where)


def _unknown(view: RunView, settings: ShowSettings) -> str:
    """Return an error message with the range of the existing tasks or repeats."""
    path = view.files.results
    if settings.task is None:
        repeats = {score.key.repeat for score in view.index.scores(Filter())}
    else:
        repeats = {score.key.repeat for score in view.index.repeats(settings.task)}
        if not repeats:
            tasks = {score.key.task for score in view.index.scores(Filter())}
            return f"{path}: there is no task {settings.task}. {_range('tasks', tasks)}"
    of_task = "" if settings.task is None else f" of task {settings.task}"
    return f"{path}: there is no repeat {settings.repeat}{of_task}. {_range('repeats', repeats)}"


def _range(noun: str, numbers: set[int]) -> str:
    return f"The {noun} are {min(numbers)} to {max(numbers)}." if numbers else f"There are no {noun}."


def _where(view: RunView, chosen: Filter, where: str) -> Iterator[Score]:
    """Yield the rollouts whose records fulfil a condition. The records are read from the files.

    At the end, raise `DataError` if the condition names a field that none of the records has.
    """
    condition = Condition(where)
    for place in view.index.places(chosen):
        row = place.read()
        if condition.holds(row.fields):
            yield Score(place.key, row.agent, place.outcome, row.reward)
    if condition.unseen:
        names = ", ".join(condition.unseen)
        raise DataError(f"{view.files.results}: where: no rollout has the field {names}. Check the spelling.")


def _ordered(scores: Iterator[Score], settings: ShowSettings) -> Iterator[Score]:
    """Return only the lowest or highest scores, in order, if `worst` or `best` is set; otherwise all scores."""
    if settings.worst:
        return iter(heapq.nsmallest(settings.worst, scores, key=_reward))
    if settings.best:
        return iter(heapq.nlargest(settings.best, scores, key=_reward))
    return scores


def _reward(score: Score) -> float:
    return 0.0 if score.reward is None else score.reward


def _print(view: RunView, places: list[Place], settings: ShowSettings) -> None:
    if settings.as_json:
        for place in places:
            printing.say_document(f"{place.raw().decode()}\n", visible_json)
        return
    output, transcript = Output(), Transcript(is_full=settings.full)
    for number, place in enumerate(places):
        if number:
            output.print([Line("")])
        output.print(transcript.lines(*_rollout(view, place, settings)))


def _rollout(view: RunView, place: Place, settings: ShowSettings) -> tuple[dict[str, object], str | None]:
    """Return the rollout at a place in a file, and the path of the failed server's log (None if unknown)."""
    shown = shown_at(view, place)
    items_bytes = sys.maxsize if settings.full else ITEMS_BYTES
    log = shown.record.failure_log
    try:
        found = rollout_json(shown, settings.paths, items_bytes=items_bytes)
    except RecursionError as error:
        advice = "--json prints the line"
        raise DataError(
            f"{place.path}:{place.line}: the record is nested too deeply to be shown; {advice}."
        ) from error
    return found, log if isinstance(log, str) else None
