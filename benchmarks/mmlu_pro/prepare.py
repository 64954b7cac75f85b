"""Fetch MMLU-Pro, and write its questions as rows of mcqa.

python benchmarks/mmlu_pro/prepare.py
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_uppercase

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.mcqa.rows import choice_row, lettered

OUTPUT = Path(__file__).parent / "data" / "mmlu_pro.jsonl"
SOURCE = HuggingFace("TIGER-Lab/MMLU-Pro", "data/test-00000-of-00001.parquet")
COLUMNS = {
    "question_id": int,
    "question": str,
    "options": list[str],
    "answer": str,
    "answer_index": int,
    "category": str,
    "src": str,
}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(table_row: TableRow) -> JsonObject:
    row, where = table_row.fields, table_row.place
    if row["answer"] != ascii_uppercase[row["answer_index"] :][:1]:
        raise DataError(f"{where}: answer '{row['answer']}' and answer_index {row['answer_index']} differ.")
    return choice_row(
        row["question"],
        lettered(row["options"]),
        row["answer"],
        where=where,
        grading_mode="lenient_answer_colon_md",
        subset=row["category"],
        metadata={"id": row["question_id"], "source": row["src"]},
    )


if __name__ == "__main__":
    run_prepare(prepare)
