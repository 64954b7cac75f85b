"""Fetch the test questions of GSM8K, and write them as rows of math_with_judge.

python benchmarks/gsm8k/prepare.py
"""

from __future__ import annotations

import re
from pathlib import Path

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "gsm8k.jsonl"
SOURCE = GitHub("openai/grade-school-math", "grade_school_math/data/test.jsonl", revision="master")
COLUMNS = {"question": str, "answer": str}
# The solution contains calculations such as <<48/2=24>>, but what follows the mark does not.
ANSWER = re.compile(r"#### *(?P<number>-?[\d,]*\.?\d+)\s*$")


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(problem: TableRow) -> JsonObject:
    answer = ANSWER.search(problem.fields["answer"])
    if answer is None:
        raise DataError(f"{problem.place}: column 'answer' does not end with '#### ' and a number.")
    return {
        "question": problem.fields["question"].strip(),
        "expected_answer": answer["number"].replace(",", ""),
        "metadata": {"id": problem.number},
    }


if __name__ == "__main__":
    run_prepare(prepare)
