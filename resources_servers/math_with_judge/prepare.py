r"""Generate rows of this environment from GSM8K.

python resources_servers/math_with_judge/prepare.py --split train --output <rows.jsonl>        fetches GSM8K
python resources_servers/math_with_judge/prepare.py --input <gsm8k.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import uuid
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, Split, UsageError, convert_lines, run_prepare, split_rows
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import Line, write_rows

INSTRUCTION = r"Think it through step by step, then put the answer, and nothing else, into \boxed{}."
ANSWER_MARK = "####"
TRAINING_QUESTIONS = GitHub("openai/grade-school-math", "grade_school_math/data/train.jsonl", revision="master")
COUNT_OF_SPLIT: dict[Split, int] = {"train": 6500, "validation": 600}
"""The number of rows per split, out of 7,473 training questions. The test questions are reserved for benchmarks."""


class Gsm8kRow(BaseModel):
    """A GSM8K question. The answer shows the working, then the result after `####`."""

    question: str
    answer: str


def prepare(
    *,
    output: Path,
    input: Path | None = None,
    split: Split | None = None,
    count: int | None = None,
    skip_bad: bool = False,
) -> Path:
    """Write one row per question of a GSM8K file, and return the output path.

    input: a file of GSM8K (JSON Lines)
    split: fetch GSM8K's training questions and use a part of them for this split, instead of reading an input
    count: number of rows of the split

    Raise `DataError` with file and line if a line is not a question with an answer; then nothing is written.
    `skip_bad` leaves out and reports such lines.
    """
    if (input is None) == (split is None):
        raise UsageError("either --input or --split is required: a file of GSM8K, or a split of GSM8K to fetch")
    path = fetch(TRAINING_QUESTIONS, folder=output.parent / "source") if input is None else input
    rows = convert_lines(path, lambda line: _row(line, path), skip_bad=skip_bad)
    if split is not None:
        rows = split_rows(rows, split, count or COUNT_OF_SPLIT[split], key=itemgetter("question"))
    write_rows(output, rows)
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
