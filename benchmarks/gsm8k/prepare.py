"""Fetch the test questions of GSM8K, and write them as rows of math_with_judge.

python benchmarks/gsm8k/prepare.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "gsm8k.jsonl"
SOURCE = GitHub("openai/grade-school-math", "grade_school_math/data/test.jsonl", revision="master")
# The solution contains calculations such as <<48/2=24>>, but what follows the mark does not.
ANSWER = re.compile(r"#### *(?P<number>-?[\d,]*\.?\d+)\s*$")


def prepare(output: Path = OUTPUT) -> Path:
    """Write one row per question, and return the output path."""
    write_rows(output, _rows(fetch(SOURCE, folder=output.parent / "source")))
    return output


def _rows(path: Path) -> Iterator[JsonObject]:
    for number, problem in enumerate(read_table(path, {"question": str, "answer": str}), start=1):
        answer = ANSWER.search(problem["answer"])
        if answer is None:
            raise DataError(f"{path}:{number}: column 'answer' does not end with '#### ' and a number.")
        yield {
            "question": problem["question"].strip(),
            "expected_answer": answer["number"].replace(",", ""),
            "metadata": {"id": number},
        }


if __name__ == "__main__":
    run_prepare(prepare)
