"""Fetch and convert MMLU's questions for training and validation. The test questions are reserved for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase

from nemo_gym import Split, convert_table
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject
from resources_servers.mcqa.grading import GradingMode
from resources_servers.mcqa.rows import choice_row, lettered

FILE_OF_SPLIT: dict[Split, str] = {"train": "auxiliary_train", "validation": "validation"}
COLUMNS = {"question": str, "subject": str, "choices": list[str], "answer": int}


def mmlu_rows(
    split: Split, folder: Path, grading_mode: GradingMode, *, skip_bad: bool = False
) -> Iterator[JsonObject]:
    """Yield the rows of a split, without their prompts. The downloaded file is kept in `folder`."""
    name = FILE_OF_SPLIT[split]
    path = fetch(HuggingFace("cais/mmlu", f"all/{name}-00000-of-00001.parquet"), folder=folder)

    def row_of(row: TableRow) -> JsonObject:
        question = row.fields
        return choice_row(
            question["question"],
            lettered(question["choices"]),
            ascii_uppercase[question["answer"] :][:1],
            where=row.place,
            grading_mode=grading_mode,
            metadata={"dataset": f"mmlu_{name}", "subject": question["subject"], "line": row.number},
        )

    return convert_table(path, COLUMNS, row_of, skip_bad=skip_bad)
