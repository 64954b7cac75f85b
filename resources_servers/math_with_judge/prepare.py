r"""Convert GSM8K's files to rows of this environment.

python resources_servers/math_with_judge/prepare.py --input <gsm8k.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, convert_lines, run_prepare
from nemo_gym.jsonl import Line, write_rows

INSTRUCTION = r"Think it through step by step, then put the answer, and nothing else, into \boxed{}."
ANSWER_MARK = "####"


class Gsm8kRow(BaseModel):
    """A GSM8K question. The answer shows the working, then the result after `####`."""

    question: str
    answer: str


def prepare(input: Path, output: Path, *, skip_bad: bool = False) -> Path:
    """Write one row per question of a GSM8K file, and return the output path.

    Raises `DataError` with file and line if a line is not a question with an answer; then nothing is written.
    `skip_bad` leaves out and reports such lines.
    """
    write_rows(output, convert_lines(input, lambda line: _row(line, input), skip_bad=skip_bad))
    return output


def _row(line: Line, path: Path) -> dict[str, Any]:
    try:
        question = Gsm8kRow.model_validate(line.row)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise DataError(
            f"{path}:{line.number}: {field}: {problem['msg']}. Only GSM8K's rows can be converted."
        ) from error
    _, mark, answer = question.answer.rpartition(ANSWER_MARK)
    if not mark or not answer.strip():
        raise DataError(f"{path}:{line.number}: answer: the result after '{ANSWER_MARK}' is missing.")
    text = question.question.strip()
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{text}\n\n{INSTRUCTION}"}]},
        "question": text,
        "expected_answer": answer.strip().replace(",", ""),
        "metadata": {"dataset": "gsm8k", "line": line.number},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode())),
    }


if __name__ == "__main__":
    run_prepare(prepare)
