"""Fetch SimpleQA Verified, and write its questions as rows of short_answer_judge.

python benchmarks/simpleqa/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "simpleqa.jsonl"
SOURCE = HuggingFace("codelion/SimpleQA-Verified", "data/train-00000-of-00001.parquet")
COLUMNS = {"problem": str, "answer": str}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(row: TableRow) -> JsonObject:
    question, answer = row.fields["problem"].strip(), row.fields["answer"].strip()
    for column, text in (("problem", question), ("answer", answer)):
        if not text:
            raise DataError(f"{row.place}: column '{column}' is empty. Fetch another revision.")
    return {"question": question, "expected_answer": answer, "metadata": {"row": row.number}}


if __name__ == "__main__":
    run_prepare(prepare)
