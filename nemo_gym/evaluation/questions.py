"""Turn a table of questions and answers into the rows of a benchmark."""

from __future__ import annotations

import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Literal, NamedTuple, Required, TypedDict

from nemo_gym.data.made import record_inputs
from nemo_gym.data.media import IS_URL
from nemo_gym.errors import DataError
from nemo_gym.evaluation.sheets import LIST_SEPARATOR, Sheet, SheetRow, read_sheet
from nemo_gym.grading import normalised, number_in, unwrapped
from nemo_gym.jsonl import write_rows
from nemo_gym.text import counted

Grader = Literal["exact", "number", "choice", "regex", "contains", "judge", "rubric"]

AnswerForm = Literal["text", "letter", "index"]

COMPARED: tuple[Grader, ...] = ("exact", "number", "choice", "regex", "contains")
"""The graders that do not need a judge model."""
EXAMPLES = 5
TRAIN_FILE = "train.jsonl"
"""The rows for training, next to those of the benchmark."""
IMAGES = "images"
"""The folder of a benchmark's image files, next to its rows."""
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
    answer_is: AnswerForm = "text"
    """For the grader `choice`: whether an answer is the option's text, its letter (A, B, …) or its index from 0."""
    system: str | None = None
    """The column of system prompts."""
    image: str | None = None
    """The column of images: URLs, or paths of files below the table's folder."""

    @property
    def names(self) -> dict[str, str]:
        """The names of the columns that are used, by their part."""
        return {part: name for part, name in vars(self).items() if name and part != "answer_is"}


class Question(TypedDict, total=False):
    """A row of a benchmark of questions."""

    question: Required[str]
    expected_answer: str
    grader: str
    options: list[str]
    choices: str
    subset: str
    system: str
    image: str
    metadata: dict[str, object]
    """The number of the table's row, and its other cells."""


class Questions(NamedTuple):
    """The rows of a benchmark, and notes for the user, for example about repeated questions."""

    rows: list[Question]
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
    answer_is: AnswerForm = "text",
    system: str | None = None,
    image: str | None = None,
    train_share: float = 0.0,
    script: Path | None = None,
) -> Path:
    """Write a table's questions as rows to `output`, and the first few to `example.jsonl` next to it. Return `output`.

    A share of the questions is for training, and written to `train.jsonl` instead. A question stays on its side if
    others change. Image files are copied to `images/` next to it, if they are not there yet. The hashes of the table
    and of the calling `script` are recorded, so that `ng eval run` detects later changes.
    """
    columns = Columns(question, answer, options, subset, answer_is, system, image)
    kept = output.parent / IMAGES
    train, rows = divided(source, questions_of(source, columns, grader, kept).rows, train_share)
    output.parent.mkdir(parents=True, exist_ok=True)
    copy_images(source, columns, kept)
    write_rows(output.with_name("example.jsonl"), rows[:EXAMPLES])
    for path, written in ((output, rows), (output.with_name(TRAIN_FILE), train)):
        if written:
            write_rows(path, written)
            record_inputs(path, source, *([script] if script else []))
    return output


class Divided(NamedTuple):
    train: list[Question]
    benchmark: list[Question]


def divided(source: Path, rows: list[Question], train_share: float) -> Divided:
    """Divide rows between training and the benchmark. Equal questions are on the same side.

    Raise `DataError` if a side has no rows.
    """
    train: list[Question] = []
    rest: list[Question] = []
    for row in rows:
        is_for_training = zlib.crc32(row["question"].encode()) < train_share * 2**32
        (train if is_for_training else rest).append(row)
    if not rest or (train_share and not train):
        side = "the benchmark" if train else "training"
        raise DataError(
            f"{source}: of {counted(len(rows), 'question')}, a train share of {train_share:g} leaves none for {side}. "
            "Choose another share."
        )
    return Divided(train, rest)


def copy_images(source: Path, columns: Columns, kept: Path) -> None:
    """Copy the image files that a table names to the folder `kept`. Those that are there already stay."""
    if columns.image is None:
        return
    sheet = read_sheet(source)
    column = sheet.column(columns.image)
    for cell in {row.cells[column] for row in sheet.rows}:
        if not IS_URL.match(cell) and not (kept / cell).exists():
            (kept / cell).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.parent / cell, kept / cell)


def questions_of(source: Path, columns: Columns, grader: Grader, kept: Path | None = None) -> Questions:
    """Return a table's questions as rows. Raise `DataError` with the row and the column of each invalid cell.

    Image files may also be in the folder `kept`, where an earlier call has copied them.
    """
    sheet = read_sheet(source)
    named = {part: sheet.column(name) for part, name in columns.names.items()}
    if columns.answer_is != "text":
        if "options" not in named:
            raise DataError(f"{source}: answers as {columns.answer_is} need a column with the options (--options).")
        sheet = Sheet(
            sheet.path, sheet.columns, tuple(_with_text(sheet, row, named, columns.answer_is) for row in sheet.rows)
        )
    if "answer" not in named and grader != "rubric":
        raise DataError(f"{source}: grader '{grader}' needs a column with the answers. Name it with --answer.")
    shared = _all_answers(sheet, named) if grader == "choice" and "options" not in named else []
    rows: list[Question] = []
    problems: list[str] = []
    for row in sheet.rows:
        found = list(_problems(row, named, grader, shared))
        if "image" in named and (problem := _problem_of_image(row.cells[named["image"]], source.parent, kept)):
            found.append((named["image"], problem))
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


def _with_text(sheet: Sheet, row: SheetRow, named: dict[str, str], form: AnswerForm) -> SheetRow:
    """Replace the letter or index of an answer by the option's text. Raise `DataError` if the option is missing."""
    options, answer = _options(row, named, []), row.cells[named["answer"]].strip().strip("().").upper()
    letters = dict(zip(ascii_uppercase, options, strict=False)) if form == "letter" else {}
    indices = {str(place): option for place, option in enumerate(options)} if form == "index" else {}
    text = (letters | indices).get(answer.removesuffix(".0"))
    if answer and text is None:
        raise DataError(
            f"{sheet.path}: row {row.number}, column '{named['answer']}': '{row.cells[named['answer']]}' is not the "
            f"{form} of one of the {counted(len(options), 'option')}. Correct the answer or the options."
        )
    return row if text is None else SheetRow(row.number, {**row.cells, named["answer"]: text})


def _task(row: SheetRow, named: dict[str, str], grader: Grader, shared: list[str]) -> Question:
    task = Question(question=row.cells[named["question"]])
    if answer := row.cells[named["answer"]] if "answer" in named else "":
        task["expected_answer"] = answer
    if grader in COMPARED:
        task["grader"] = grader
    if grader == "choice":
        task["options"] = _options(row, named, shared)
        task["choices"] = "\n".join(f"- {option}" for option in task["options"])
    part: Literal["subset", "system"]
    for part in ("subset", "system"):
        if part in named:
            task[part] = row.cells[named[part]]
    if "image" in named:
        place = row.cells[named["image"]]
        task["image"] = place if IS_URL.match(place) else f"{IMAGES}/{place}"
    used = set(named.values())
    others = {name: cell for name, cell in row.cells.items() if name not in used and cell}
    task["metadata"] = {"row": row.number, **others}
    return task


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
    if "system" in named and not row.cells[named["system"]]:
        yield named["system"], "the system prompt is empty. Fill it in."
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


def _problem_of_image(cell: str, folder: Path, kept: Path | None) -> str | None:
    if not cell:
        return "the image is empty. Name a file or a URL, or delete the row."
    if IS_URL.match(cell):
        return None
    if Path(cell).is_absolute() or ".." in Path(cell).parts:
        return f"'{cell}' is not below the table's folder. Move the file there, and use a path relative to the table."
    if not any(root is not None and (root / cell).is_file() for root in (folder, kept)):
        return f"the image '{cell}' was not found in {folder}. Correct the path, or use a URL."
    return None


def _repeated(source: Path, rows: list[Question]) -> list[str]:
    times = Counter(row["question"] for row in rows)
    repeated = [question for question, count in times.items() if count > 1]
    if not repeated:
        return []
    places = ", ".join(str(row["metadata"]["row"]) for row in rows if row["question"] == repeated[0])
    return [
        f"{source}: {counted(len(repeated), 'question')} asked more than once, such as in rows {places}. Each counts "
        "as a task of its own."
    ]
