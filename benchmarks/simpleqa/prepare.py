"""Fetch SimpleQA Verified, and write its questions as rows of short_answer_judge.

python benchmarks/simpleqa/prepare.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "simpleqa.jsonl"
SOURCE = HuggingFace("codelion/SimpleQA-Verified", "data/train-00000-of-00001.parquet")


def prepare(output: Path = OUTPUT) -> Path:
    """Write one row per question, and return the output path."""
    write_rows(output, _rows(fetch(SOURCE, folder=output.parent / "source")))
    return output


def _rows(path: Path) -> Iterator[JsonObject]:
    for number, row in enumerate(read_table(path, {"problem": str, "answer": str}), start=1):
        question, answer = row["problem"].strip(), row["answer"].strip()
        for column, text in (("problem", question), ("answer", answer)):
            if not text:
                raise DataError(f"{path}: row {number}: column '{column}' is empty. Fetch another revision.")
        yield {"question": question, "expected_answer": answer, "metadata": {"row": number}}


if __name__ == "__main__":
    run_prepare(prepare)
