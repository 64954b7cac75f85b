"""Convert the multiple-choice files of AGIEval."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError
from nemo_gym.jsonl import JsonObject, Line
from resources_servers.mcqa.grading import GradingMode
from resources_servers.mcqa.rows import choice_row

_OPTION = re.compile(r"\s*(?:\((?P<letter>[A-Z])\)|(?P<bare>[A-Z])(?:[.:)]|(?=\s)))\s*(?P<text>.*)", re.DOTALL)


class AgievalRow(BaseModel):
    """A multiple-choice question of AGIEval. Options look like `(A)36` or `A 36`, and `label` is the right letter."""

    passage: str | None = None
    question: str
    options: list[str]
    label: str


def agieval_row(line: Line, path: Path, grading_mode: GradingMode) -> JsonObject:
    """Return the row of a line, without its prompt. The question begins with the passage.

    Raise `DataError` with file and line for a question without lettered options or without one correct letter.
    """
    where = f"{path}:{line.number}"
    try:
        question = AgievalRow.model_validate(line.row)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise DataError(
            f"{where}: {field}: {problem['msg']}. Only AGIEval's multiple-choice questions with one right option can "
            "be turned into rows."
        ) from error
    options = _options(question.options, where)
    if question.label not in options:
        raise DataError(f"{where}: label: '{question.label}' is not one of the options {', '.join(options)}.")
    return choice_row(
        "\n\n".join(part.strip() for part in (question.passage, question.question) if part),
        options,
        question.label,
        where=where,
        grading_mode=grading_mode,
        metadata={"dataset": path.stem, "line": line.number},
    )


def _options(texts: list[str], where: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in texts:
        parts = _OPTION.fullmatch(text)
        if parts is None:
            raise DataError(f"{where}: options: {text!r} does not begin with a letter, such as '(A)' or 'A '.")
        letter = parts["letter"] or parts["bare"]
        if letter in options:
            raise DataError(f"{where}: options: two options have the letter {letter}.")
        options[letter] = parts["text"]
    # Some questions of logiqa-en list their options in another order, such as A C B D.
    return dict(sorted(options.items()))
