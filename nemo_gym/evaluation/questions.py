"""Turn a table of questions and answers into the rows of a benchmark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from nemo_gym.config.wording import counted
from nemo_gym.data.made import record_inputs
from nemo_gym.errors import DataError
from nemo_gym.evaluation.sheets import LIST_SEPARATOR, Sheet, SheetRow, read_sheet
from nemo_gym.grading import normalised, number_in, unwrapped
from nemo_gym.jsonl import JsonObject, write_rows

Grader = Literal["exact", "number", "choice", "regex", "contains", "judge", "rubric"]

COMPARED: tuple[Grader, ...] = ("exact", "number", "choice", "regex", "contains")
"""The graders that do not need a judge model."""
EXAMPLES = 5
MOST_OPTIONS = 50
PROBLEMS_SHOWN = 10


@dataclass(frozen=True)
class Columns:
    """The names of the columns that a benchmark uses. All other columns become the rows' `metadata`."""

    question: str
    answer: str | None = None
    """The column of expected answers. Only the grader `rubric` does not need this column."""
    options: str | None = None
    """For the grader `choice`: the column with the options, separated by `|`. By default, all answers are options."""
    subset: str | None = None
    """The column that assigns each question to a subset. Metrics are also computed for each subset."""


class Questions(NamedTuple):
    """The rows of a benchmark, and notes for the user, for example about repeated questions."""

    rows: list[JsonObject]
    notes: list[str]


def write_questions(
    source: Path,
    output: Path,
    *,
    grader: Grader,
    question: str,
    answer: str | None = None,
    options: str | None = None,
    subset: str | None = None,
    script: Path | None = None,
) -> Path:
    """Write a table's questions as rows to `output`, and the first few to `example.jsonl` next to it. Return `output`.

    The hashes of the table and of the calling `script` are recorded, so that `ng eval run` detects later changes.
    """
    rows = questions_of(source, Columns(question, answer, options, subset), grader).rows
    output.parent.mkdir(parents=True, exist_ok=True)
    write_rows(output.with_name("example.jsonl"), rows[:EXAMPLES])
    write_rows(output, rows)
    record_inputs(output, source, *([script] if script else []))
    return output


def questions_of(source: Path, columns: Columns, grader: Grader) -> Questions:
    """Return a table's questions as rows. Raise `DataError` with the row and the column of each invalid cell."""
    sheet = read_sheet(source)
    named = {part: sheet.column(name) for part, name in vars(columns).items() if name}
    if "answer" not in named and grader != "rubric":
        raise DataError(f"{source}: grader '{grader}' needs a column with the answers. Name it with --answer.")
    shared = _all_answers(sheet, named) if grader == "choice" and "options" not in named else []
    rows: list[JsonObject] = []
    problems: list[str] = []
    for row in sheet.rows:
        found = list(_problems(row, named, grader, shared))
        problems += [f"{source}: row {row.number}, column '{column}': {problem}" for column, problem in found]
        if not found:
            rows.append(_task(row, named, grader, shared))
    if problems:
        hidden = len(problems) - PROBLEMS_SHOWN
        more = f"\n… and {counted(hidden, 'more cell')} with a mistake." if hidden > 0 else ""
        raise DataError("\n".join(problems[:PROBLEMS_SHOWN]) + more)
    if not rows:
        raise DataError(f"{source}: the table has a header, but no questions. Add one row per question.")
    return Questions(rows, _repeated(source, rows))


def _task(row: SheetRow, named: dict[str, str], grader: Grader, shared: list[str]) -> JsonObject:
    task: JsonObject = {"question": row.cells[named["question"]]}
    if answer := row.cells[named["answer"]] if "answer" in named else "":
        task["expected_answer"] = answer
    if grader in COMPARED:
        task["grader"] = grader
    if grader == "choice":
        task["options"] = _options(row, named, shared)
        task["choices"] = "\n".join(f"- {option}" for option in task["options"])
    if "subset" in named:
        task["subset"] = row.cells[named["subset"]]
    used = set(named.values())
    others = {name: cell for name, cell in row.cells.items() if name not in used and cell}
    return {**task, "metadata": {"row": row.number, **others}}


def _options(row: SheetRow, named: dict[str, str], shared: list[str]) -> list[str]:
    if "options" not in named:
        return shared
    return [part.strip() for part in row.cells[named["options"]].split(LIST_SEPARATOR) if part.strip()]


def _all_answers(sheet: Sheet, named: dict[str, str]) -> list[str]:
    found: dict[str, str] = {}
    for row in sheet.rows:
        if answer := row.cells[named["answer"]]:
            found.setdefault(normalised(answer), answer)
    if not 2 <= len(found) <= MOST_OPTIONS:
        raise DataError(
            f"{sheet.path}: column '{named['answer']}' has {counted(len(found), 'different answer')}, but a choice "
            f"needs 2 to {MOST_OPTIONS}. Name a column with options separated by '{LIST_SEPARATOR}' (--options), or "
            "use another grader."
        )
    return sorted(found.values())


def _problems(row: SheetRow, named: dict[str, str], grader: Grader, shared: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the column and the problem of each invalid cell."""
    if not row.cells[named["question"]]:
        yield named["question"], "the question is empty. Fill it in, or delete the row."
    if "subset" in named and not row.cells[named["subset"]]:
        yield named["subset"], "the subset is empty. Fill it in."
    if "answer" not in named:
        return
    column = named["answer"]
    answer = row.cells[column]
    if not answer:
        if grader != "rubric":
            yield column, "the answer is empty. Fill it in, or delete the row."
    elif problem := _problem_of_answer(answer, grader, _options(row, named, shared)):
        yield column, problem


def _problem_of_answer(answer: str, grader: Grader, options: list[str]) -> str | None:
    if grader == "number" and number_in(unwrapped(answer)) is None:
        return f"'{answer}' is not a number. Correct it, or use another grader."
    if grader == "choice":
        same = [option for option in options if normalised(option) == normalised(answer)]
        if len(same) != 1:
            return (
                f"the answer '{answer}' is not exactly one of the options ({', '.join(options)}). Correct the answer "
                "or the options."
            )
    if grader == "regex":
        try:
            re.compile(answer)
        except re.error as error:
            return f"'{answer}' is not a regular expression ({error}). Correct it."
    return None


def _repeated(source: Path, rows: list[JsonObject]) -> list[str]:
    times = Counter(row["question"] for row in rows)
    repeated = [question for question, count in times.items() if count > 1]
    if not repeated:
        return []
    places = ", ".join(str(row["metadata"]["row"]) for row in rows if row["question"] == repeated[0])
    return [
        f"{source}: {counted(len(repeated), 'question')} asked more than once, such as in rows {places}. Each counts "
        "as a task of its own."
    ]
