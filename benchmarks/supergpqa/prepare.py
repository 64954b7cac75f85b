"""Fetch SuperGPQA, and write its questions as rows of mcqa.

python benchmarks/supergpqa/prepare.py
"""

from __future__ import annotations

from pathlib import Path

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.mcqa.rows import choice_row, lettered

OUTPUT = Path(__file__).parent / "data" / "supergpqa.jsonl"
SOURCE = HuggingFace("m-a-p/SuperGPQA", "SuperGPQA-all.jsonl")
METADATA = ("field", "subfield", "difficulty", "is_calculation")
COLUMNS = {
    **dict.fromkeys(("uuid", "question", "answer", "answer_letter", "discipline", *METADATA), str),
    "options": list[str],
    "is_calculation": bool,
}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(table_row: TableRow) -> JsonObject:
    row, where = table_row.fields, table_row.place
    options, letter = lettered(row["options"]), row["answer_letter"]
    if options.get(letter, "").strip() != row["answer"].strip():
        raise DataError(f"{where}: answer_letter: '{letter}' is not the letter of the answer among the options.")
    return choice_row(
        row["question"],
        options,
        letter,
        where=where,
        grading_mode="lenient_answer_colon_md",
        subset=row["discipline"],
        metadata={"id": row["uuid"], **{name: row[name] for name in METADATA}},
    )


if __name__ == "__main__":
    run_prepare(prepare)
