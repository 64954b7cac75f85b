r"""Convert questions with free-form answers to rows of this environment.

python resources_servers/equivalence_llm_judge/prepare.py --input <questions.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError, convert_lines, run_prepare
from nemo_gym.grading import AnswerText
from nemo_gym.jsonl import Line, write_rows

INSTRUCTION = "Give your answer between <answer> and </answer>, and nothing else there."
OUTPUT_REGEX = r"(?s)<answer>(.*?)</answer>"


class Question(BaseModel):
    """A question and its answer; other fields become the row's metadata."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(min_length=1)
    answer: AnswerText = Field(min_length=1)


def prepare(input: Path, output: Path, *, skip_bad: bool = False) -> Path:
    """Write one row per line `{"question": …, "answer": …}`, and return the output path.

    Raises `DataError` with file and line for an invalid line; then nothing is written. `skip_bad` leaves out and
    reports such lines.
    """
    write_rows(output, convert_lines(input, lambda line: _row(line, input), skip_bad=skip_bad))
    return output


def _row(line: Line, path: Path) -> dict[str, Any]:
    try:
        question = Question.model_validate(line.row)
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"{path}:{line.number}: {'.'.join(str(part) for part in problem['loc'])}"
        raise DataError(f"{where}: {problem['msg']}. Each line needs a question and an answer.") from error
    text = f"{question.question.strip()}\n\n{INSTRUCTION}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": text}]},
        "question": question.question.strip(),
        "expected_answer": question.answer.strip(),
        "template_metadata": {"output_regex": OUTPUT_REGEX},
        "metadata": {"dataset": path.stem, "line": line.number, **(question.model_extra or {})},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode())),
    }


if __name__ == "__main__":
    run_prepare(prepare)
