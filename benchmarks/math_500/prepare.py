r"""Fetch MATH-500, and write its problems as rows of math_with_judge.

python benchmarks/math_500/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import Url, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "math_500.jsonl"
# The repository keeps its files in Git LFS, and only this address resolves them.
SOURCE = Url("https://github.com/openai/prm800k/raw/main/prm800k/math_splits/test.jsonl")
COLUMNS = {"problem": str, "answer": str, "subject": str, "level": int, "unique_id": str}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per problem, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(row: TableRow) -> JsonObject:
    problem = row.fields
    if not problem["answer"].strip():
        raise DataError(f"{row.place}: column 'answer' is blank. Fetch another revision.")
    return {
        "question": problem["problem"].strip(),
        "expected_answer": problem["answer"].strip(),
        "subset": problem["subject"],
        "metadata": {"id": problem["unique_id"], "level": problem["level"]},
    }


if __name__ == "__main__":
    run_prepare(prepare)
