"""Fetch the problems of AIME 2024, and write them as rows of math_with_judge.

python benchmarks/aime24/prepare.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "aime24.jsonl"
SOURCE = HuggingFace("HuggingFaceH4/aime_2024", "data/train-00000-of-00001.parquet")
COLUMNS = {"id": int, "problem": str, "answer": str}
LARGEST_ANSWER = 999


def prepare(output: Path = OUTPUT) -> Path:
    """Write one row per problem, and return the output path."""
    write_rows(output, _rows(fetch(SOURCE, folder=output.parent / "source")))
    return output


def _rows(path: Path) -> Iterator[JsonObject]:
    for number, problem in enumerate(read_table(path, COLUMNS), start=1):
        yield {
            "question": problem["problem"].strip(),
            "expected_answer": _whole_number(str(problem["answer"]).strip(), f"{path}: row {number}"),
            "metadata": {"id": problem["id"]},
        }


def _whole_number(answer: str, where: str) -> str:
    if not (answer.isascii() and answer.isdecimal() and int(answer) <= LARGEST_ANSWER):
        raise DataError(
            f"{where}: column 'answer': '{answer}' is not a whole number from 0 to {LARGEST_ANSWER}. "
            "Fetch another revision."
        )
    return str(int(answer))


if __name__ == "__main__":
    run_prepare(prepare)
