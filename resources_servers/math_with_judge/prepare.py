r"""Turn GSM8K's files into rows of this environment.

python resources_servers/math_with_judge/prepare.py --input <gsm8k.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import Line, read_lines, write_rows

INSTRUCTION = r"Think it through step by step, then put the answer, and nothing else, into \boxed{}."
ANSWER_MARK = "####"


class Gsm8kRow(BaseModel):
    """A question as GSM8K writes it: the answer is worked out, and stands alone behind `####`."""

    question: str
    answer: str


def prepare(input: Path, output: Path) -> Path:
    """Write one row per question of a GSM8K file, and answer where they are.

    Raises `DataError` with file and line for what is not a question with an answer; then nothing is written.
    """
    write_rows(output, _rows(input))
    return output


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in read_lines(path):
        try:
            question = Gsm8kRow.model_validate(line.row)
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(str(part) for part in problem["loc"])
            raise DataError(
                f"{path}:{line.number}: {field}: {problem['msg']}. Only GSM8K's rows can be read."
            ) from error
        yield _row(question, line, path)


def _row(question: Gsm8kRow, line: Line, path: Path) -> dict[str, Any]:
    _, mark, answer = question.answer.rpartition(ANSWER_MARK)
    if not mark or not answer.strip():
        raise DataError(f"{path}:{line.number}: answer: nothing stands behind '{ANSWER_MARK}', where it should end.")
    text = question.question.strip()
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{text}\n\n{INSTRUCTION}"}]},
        "question": text,
        "expected_answer": answer.strip().replace(",", ""),
        "metadata": {"dataset": "gsm8k", "line": line.number},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode())),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Turn a GSM8K file into rows of the math_with_judge environment.")
    parser.add_argument("--input", type=Path, required=True, help="a GSM8K file (JSON Lines)")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.input, asked.output)


if __name__ == "__main__":
    sys.exit(main())
