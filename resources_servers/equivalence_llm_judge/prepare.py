r"""Generate rows of generated questions with free-form answers, or convert the questions of a file to rows.

python resources_servers/equivalence_llm_judge/prepare.py --count 500 --output <rows.jsonl>
python resources_servers/equivalence_llm_judge/prepare.py --input <questions.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError, Split, UsageError, convert_lines, run_prepare, split_rows
from nemo_gym.grading import AnswerText
from nemo_gym.jsonl import Line, write_rows
from resources_servers.equivalence_llm_judge.pairs import draw_pairs

INSTRUCTION = "Give your answer between <answer> and </answer>, and nothing else there."
OUTPUT_REGEX = r"(?s)<answer>(.*?)</answer>"


class Question(BaseModel):
    """A question and its answer. Other fields become the row's metadata."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(min_length=1)
    answer: AnswerText = Field(min_length=1)


def prepare(
    output: Path,
    input: Path | None = None,
    count: int = 500,
    seed: int = 0,
    split: Split | None = None,
    *,
    skip_bad: bool = False,
) -> Path:
    """Write `count` generated rows, or one row per line of `input`. Return the output path.

    input: a file to convert, instead of generating rows; each line is `{"question": …, "answer": …}`
    split: only generated rows of this split; the two splits have no row in common

    Raises `DataError` with file and line for an invalid line, and writes nothing. With `skip_bad`, such lines are
    reported and left out instead.
    """
    if input is not None:
        if split is not None:
            raise UsageError("split: only generated rows have splits. Leave out either --input or --split.")
        write_rows(output, convert_lines(input, lambda line: _row(line, input), skip_bad=skip_bad))
        return output
    rows = _made_rows(random.Random(f"equivalence {seed}"))
    write_rows(output, split_rows(rows, split, count) if split else itertools.islice(rows, count))
    return output


def _made_rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for pair in draw_pairs(rng):
        yield _task(pair.question, pair.answer, {"dataset": "generated"}, pair.question)


def _row(line: Line, path: Path) -> dict[str, Any]:
    try:
        question = Question.model_validate(line.row)
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"{path}:{line.number}: {'.'.join(str(part) for part in problem['loc'])}"
        raise DataError(f"{where}: {problem['msg']}. Each line needs a question and an answer.") from error
    metadata = {"dataset": path.stem, "line": line.number, **(question.model_extra or {})}
    return _task(question.question.strip(), question.answer.strip(), metadata, line.raw.decode())


def _task(question: str, answer: str, metadata: dict[str, Any], identity: str) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{question}\n\n{INSTRUCTION}"}]},
        "question": question,
        "expected_answer": answer,
        "template_metadata": {"output_regex": OUTPUT_REGEX},
        "metadata": metadata,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, identity)),
    }


if __name__ == "__main__":
    run_prepare(prepare)
