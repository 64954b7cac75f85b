"""Sample rollouts for people to label, and compare their labels with the grader's verdicts."""

from __future__ import annotations

import csv
import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from nemo_gym.errors import DataError
from nemo_gym.evaluation.sheets import SheetRow, read_sheet
from nemo_gym.evaluation.verdicts import WHOLE, choices_for, label_in, stratum_of, verdicts_of
from nemo_gym.jsonl import read_lines
from nemo_gym.labelling.agreement import Agreement, Pair, agreement
from nemo_gym.records.conversation import prompt_of, texts_of
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.row import Row, TaskKey
from nemo_gym.text import did_you_mean

ID, NOTES = "rollout", "notes"
CRITERION = "label: "
"""The prefix of a column name. The rest of the name is the criterion that people label in this column."""
LONGEST_CELL = 32_000
"""The maximum number of characters in a cell. Excel's limit is 32,767."""
PROBLEMS_SHOWN = 10
FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""A cell that starts with one of these is escaped, because spreadsheet programs would run it as a formula."""


class SampleJob(NamedTuple):
    """The parameters of `write_sample`."""

    rollouts: Path
    output: Path
    size: int
    seed: int


class Sample(NamedTuple):
    """The composition of a sample: the size of each stratum (see `stratum_of`), and how many rollouts were drawn."""

    all: Mapping[str, int]
    drawn: Mapping[str, int]


@dataclass(frozen=True)
class Labels:
    """The rows of a labels file, keyed by rollout id."""

    path: Path
    rows: Mapping[str, SheetRow]


class Graded(NamedTuple):
    key: TaskKey
    stratum: str
    verdicts: dict[str, str]


class Report(NamedTuple):
    """The agreement of a run's verdicts with labels."""

    rollouts: int
    labelled: int
    in_file: int
    unlabelled_strata: Mapping[str, int]
    """The number of rollouts in each stratum without labels. The estimates do not cover these rollouts."""
    by_name: Mapping[str, Agreement]


def write_sample(job: SampleJob) -> Sample:
    """Write a sample of rollouts to a CSV file, without their verdicts. Raise `DataError` if there are no rollouts."""
    places: dict[str, list[tuple[int, int]]] = {}
    names: dict[str, None] = {}
    for line in read_lines(job.rollouts):
        places.setdefault(stratum_of(line.row), []).append(
            (_key(Row(line.row), job.rollouts, line.number).task, line.number)
        )
        names |= dict.fromkeys(verdicts_of(line.row))
    if not places:
        raise DataError(f"{job.rollouts}: the file does not contain scored rollouts. Collect some first.")
    rng = random.Random(f"labels {job.seed}")
    drawn = _draw(places, job.size, rng)
    chosen = {number for numbers in drawn.values() for number in numbers}
    rows = [_sheet_row(Row(line.row), names) for line in read_lines(job.rollouts) if line.number in chosen]
    # Shuffle the rows, because in their original order, people could guess a verdict from the rows next to it.
    rng.shuffle(rows)
    partial = job.output.with_name(f".{job.output.name}.partial")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    # Write a byte order mark (`utf-8-sig`), so that spreadsheet programs read the file as UTF-8.
    with partial.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(job.output)
    return Sample(
        {stratum: len(each) for stratum, each in sorted(places.items())},
        {stratum: len(each) for stratum, each in sorted(drawn.items())},
    )


def read_labels(path: Path) -> Labels:
    """Read a file that `write_sample` wrote and people filled in. Raise `DataError` if a rollout occurs twice."""
    sheet = read_sheet(path)
    column = sheet.column(ID)
    rows: dict[str, SheetRow] = {}
    for row in sheet.rows:
        name = row.cells[column]
        if name in rows:
            raise DataError(
                f"{path}: row {row.number}, column '{column}': '{name}' is already in row {rows[name].number}. "
                "Delete one of the two rows."
            )
        rows[name] = row
    return Labels(path, rows)


class Labelled(NamedTuple):
    """The labelled rollouts of a run.

    `pairs` and `choices` are keyed by the name of the verdict: a criterion, or `label` for the whole answer.
    """

    pairs: Mapping[str, list[tuple[TaskKey, Pair]]]
    sizes: Mapping[str, int]
    """The number of rollouts in each stratum."""
    choices: Mapping[str, tuple[str, ...]]


def agreement_with(rollouts: Path, labels: Labels, *, seed: int = 0) -> Report:
    """Return how well a run's verdicts agree with labels. Raise `DataError` if `pairs_of` rejects the labels."""
    pairs, sizes, choices = pairs_of(rollouts, labels)
    covered = {pair.stratum for own in pairs.values() for _, pair in own}
    return Report(
        sum(sizes.values()),
        len({key for own in pairs.values() for key, _ in own}),
        len(labels.rows),
        {stratum: size for stratum, size in sorted(sizes.items()) if stratum not in covered},
        {
            name: agreement([pair for _, pair in own], sizes, choices[name], seed=seed)
            for name, own in pairs.items()
            if own
        },
    )


def pairs_of(rollouts: Path, labels: Labels) -> Labelled:
    """Match labels with a run's verdicts.

    Raise `DataError`, with the row and the column, if a label is invalid or its rollout is not in the run. Also raise
    it if a verdict's column is missing, or if no cell is filled in.
    """
    graded: dict[str, Graded] = {}
    sizes: Counter[str] = Counter()
    seen: dict[str, set[str]] = {}
    wanted = _keys(labels)
    for line in read_lines(rollouts):
        stratum, verdicts = stratum_of(line.row), verdicts_of(line.row)
        sizes[stratum] += 1
        for name, verdict in verdicts.items():
            seen.setdefault(name, set()).add(verdict)
        key = _key(Row(line.row), rollouts, line.number)
        if str(key) in wanted:
            graded[_id_of(Row(line.row))] = Graded(key, stratum, verdicts)
    _check_ids(labels, graded, rollouts)
    choices = {name: choices_for(verdicts) for name, verdicts in seen.items()}
    pairs: dict[str, list[tuple[TaskKey, Pair]]] = {name: [] for name in seen}
    for (rollout, name), label in _given(labels, choices, graded).items():
        key, stratum, verdicts = graded[rollout]
        pairs[name].append((key, Pair(stratum, verdicts[name], label)))
    if not any(pairs.values()):
        columns = ", ".join(f"'{_column(name)}'" for name in seen)
        raise DataError(f"{labels.path}: no cell of {columns} is filled in. Label some rollouts first.")
    return Labelled(pairs, sizes, choices)


def _draw(places: Mapping[str, list[tuple[int, int]]], size: int, rng: random.Random) -> dict[str, list[int]]:
    """Draw line numbers from the strata in turn. Within a stratum, prefer tasks that have not been drawn yet."""
    waiting = {stratum: _different_tasks_last(each, rng) for stratum, each in sorted(places.items())}
    drawn: dict[str, list[int]] = {stratum: [] for stratum in waiting}
    left = min(size, sum(map(len, waiting.values())))
    while left:
        for stratum, lines in waiting.items():
            if lines and left:
                drawn[stratum].append(lines.pop())
                left -= 1
    return drawn


def _different_tasks_last(places: list[tuple[int, int]], rng: random.Random) -> list[int]:
    """Return the lines in random order, with one line of each task at the end. `_draw` takes lines from the end."""
    shuffled = rng.sample(places, len(places))
    earlier: Counter[int] = Counter()
    ranked: list[tuple[int, int]] = []
    for task, number in shuffled:
        ranked.append((-earlier[task], number))
        earlier[task] += 1
    return [number for _, number in sorted(ranked, key=lambda each: each[0])]


def _sheet_row(rollout: Row, names: Mapping[str, None]) -> dict[str, str]:
    cells = {
        ID: _id_of(rollout),
        "question": _question_of(rollout),
        "expected_answer": str(rollout.fields.get("expected_answer") or ""),
        "answer": _answer_of(rollout),
        **{_column(name): "" for name in names},
        NOTES: "",
    }
    return {column: _safe(text) for column, text in cells.items()}


def _safe(text: str) -> str:
    cut = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}… (cut here)"
    # Replace lone surrogates, because they cannot be encoded as UTF-8.
    plain = cut.encode("utf-8", "replace").decode("utf-8")
    return f"'{plain}" if plain.startswith(FORMULA_SIGNS) else plain


def _column(name: str) -> str:
    return WHOLE if name == WHOLE else f"{CRITERION}{name}"


def _key(rollout: Row, path: Path, number: int) -> TaskKey:
    try:
        return rollout.key
    except KeyError as error:
        raise DataError(f"{path}:{number}: {error} is missing. Pass a file that a collection wrote.") from error


def _id_of(rollout: Row) -> str:
    """Return an id from the task, the repeat and a hash of the answer. Spreadsheet programs do not reformat it."""
    key = rollout.key
    digest = hashlib.sha256(_answer_of(rollout).encode("utf-8", "replace")).hexdigest()[:8]
    return f"t{key.task}-r{key.repeat}-{digest}"


def _keys(labels: Labels) -> set[str]:
    return {name.rpartition("-")[0].removeprefix("t").replace("-r", ":") for name in labels.rows}


def _answer_of(rollout: Row) -> str:
    try:
        response = Response.model_validate(rollout.fields.get("response"))
    except ValidationError as error:
        raise DataError(
            f"rollout {rollout.key}: the response is missing or not valid. Pass a file that a collection wrote."
        ) from error
    return response.answer_text


def _question_of(rollout: Row) -> str:
    """Return the row's `question` field, or else the text of its prompt."""
    if isinstance(question := rollout.fields.get("question"), str):
        return question
    return "\n\n".join(text for item in prompt_of(rollout.fields) for text in texts_of(item.get("content")))


def _check_ids(labels: Labels, graded: Mapping[str, object], rollouts: Path) -> None:
    for name, row in labels.rows.items():
        if name not in graded:
            same = name.rpartition("-")[0]
            other = next((each for each in graded if each.rpartition("-")[0] == same), None)
            problem = "has another answer in" if other else "is not in"
            raise DataError(
                f"{labels.path}: row {row.number}, column '{ID}': the rollout '{name}' {problem} {rollouts}. Pass "
                "the rollouts from which this sample was drawn, or the same rollouts graded again."
            )


def _given(
    labels: Labels, choices: Mapping[str, tuple[str, ...]], graded: Mapping[str, Graded]
) -> dict[tuple[str, str], str]:
    """Return the labels that are filled in, keyed by rollout id and verdict name."""
    given: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for rollout, row, name, cell in _filled(labels, list(choices)):
        place = f"{labels.path}: row {row.number}, column '{_column(name)}'"
        if name not in graded[rollout].verdicts:
            problems.append(f"{place}: the grader gave no such verdict on this rollout. Clear the cell.")
        elif (label := label_in(cell, choices[name])) is None:
            hint = did_you_mean(cell, choices[name])
            problems.append(f"{place}: '{cell}' is not one of {', '.join(choices[name])}.{hint}")
        else:
            given[rollout, name] = label
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        raise DataError("\n".join(problems[:PROBLEMS_SHOWN]) + (f"\n… and {more} more." if more > 0 else ""))
    return given


def _filled(labels: Labels, names: Sequence[str]) -> Iterator[tuple[str, SheetRow, str, str]]:
    columns = next(iter(labels.rows.values())).cells if labels.rows else {}
    if missing := [_column(name) for name in names if _column(name) not in columns]:
        raise DataError(
            f"{labels.path}: column '{missing[0]}' is missing. The grader's verdicts need these columns: "
            f"{', '.join(map(_column, names))}. Add the missing ones."
        )
    for rollout, row in labels.rows.items():
        for name in names:
            if cell := row.cells[_column(name)]:
                yield rollout, row, name, cell
