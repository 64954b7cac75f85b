r"""Turn questions with free answers into rows of this environment.

python resources_servers/equivalence_llm_judge/prepare.py --input <questions.jsonl> --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import read_lines, write_rows

INSTRUCTION = "Give your answer between <answer> and </answer>, and nothing else there."
OUTPUT_REGEX = r"(?s)<answer>(.*?)</answer>"


class Question(BaseModel):
    """A question and its answer; further fields become the row's metadata."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


def prepare(input: Path, output: Path) -> Path:
    """Write one row per line `{"question": …, "answer": …}`, and answer where they are.

    Raises `DataError` with file and line for what is no such line; then nothing is written.
    """
    write_rows(output, _rows(input))
    return output


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in read_lines(path):
        try:
            question = Question.model_validate(line.row)
        except ValidationError as error:
            problem = error.errors()[0]
            where = f"{path}:{line.number}: {'.'.join(str(part) for part in problem['loc'])}"
            raise DataError(
                f"{where}: {problem['msg']}. A line needs a question and an answer, both texts."
            ) from error
        text = f"{question.question.strip()}\n\n{INSTRUCTION}"
        yield {
            "responses_create_params": {"input": [{"role": "user", "content": text}]},
            "question": question.question.strip(),
            "expected_answer": question.answer.strip(),
            "template_metadata": {"output_regex": OUTPUT_REGEX},
            "metadata": {"dataset": path.stem, "line": line.number, **(question.model_extra or {})},
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, line.raw.decode())),
        }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Turn questions into rows of the equivalence_llm_judge environment.")
    parser.add_argument("--input", type=Path, required=True, help="questions and answers (JSON Lines)")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.input, asked.output)


if __name__ == "__main__":
    sys.exit(main())
