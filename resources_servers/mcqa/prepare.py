r"""Turn AGIEval's multiple-choice files into rows of this environment.

python resources_servers/mcqa/prepare.py --input <agieval.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, convert_lines, run_prepare
from nemo_gym.jsonl import Line, write_rows
from resources_servers.mcqa.grading import DEFAULT_MODE, GradingMode

BOXED_INSTRUCTION = r"Put the letter of the right option, and nothing else, into \boxed{}."
ANSWER_INSTRUCTION = "End with a line of the form 'Answer: X', where X is the letter of the right option."
INSTRUCTIONS: dict[GradingMode, str] = {
    "strict_single_letter_boxed": BOXED_INSTRUCTION,
    "lenient_boxed": BOXED_INSTRUCTION,
    "lenient_answer_colon": ANSWER_INSTRUCTION,
    "lenient_answer_colon_md": ANSWER_INSTRUCTION,
}

_OPTION = re.compile(r"\((?P<letter>[A-Z])\)\s*(?P<text>.*)", re.DOTALL)


class AgievalRow(BaseModel):
    """An AGIEval question: options such as `(A)36`, and the correct letter as its label."""

    passage: str | None = None
    question: str
    options: list[str]
    label: str


def prepare(input: Path, output: Path, grading_mode: GradingMode = DEFAULT_MODE, *, skip_bad: bool = False) -> Path:
    """Write one row per question of an AGIEval file (JSON Lines) and return their path.

    grading_mode: how the answer letter must be written

    Raises `DataError` with file and line for a question without lettered options or without one correct letter; then
    nothing is written. `skip_bad` leaves out and reports such questions.
    """
    write_rows(output, convert_lines(input, lambda line: _row(line, input, grading_mode), skip_bad=skip_bad))
    return output


def _row(line: Line, path: Path, grading_mode: GradingMode) -> dict[str, Any]:
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
    options = [_option(text, where) for text in question.options]
    letters = [letter for option in options for letter in option]
    if len(set(letters)) < len(letters):
        raise DataError(f"{where}: options: the letters {', '.join(letters)} are not all different.")
    if question.label not in letters:
        raise DataError(f"{where}: label: '{question.label}' is not one of the options {', '.join(letters)}.")
    parts = [question.passage, question.question, "\n".join(_lines(options)), INSTRUCTIONS[grading_mode]]
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": "\n\n".join(part.strip() for part in parts if part)}]
        },
        "options": options,
        "expected_answer": question.label,
        "grading_mode": grading_mode,
        "metadata": {"dataset": path.stem, "line": line.number},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode())),
    }


def _option(text: str, where: str) -> dict[str, str]:
    parts = _OPTION.fullmatch(text)
    if parts is None:
        raise DataError(f"{where}: options: {text!r} does not begin with a letter in brackets, such as '(A)'.")
    return {parts["letter"]: parts["text"].strip()}


def _lines(options: list[dict[str, str]]) -> Iterator[str]:
    return (f"{letter}: {text}" for option in options for letter, text in option.items())


if __name__ == "__main__":
    run_prepare(prepare)
