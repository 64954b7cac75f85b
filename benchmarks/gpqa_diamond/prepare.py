"""Fetch GPQA Diamond, shuffle the options, and write its questions as rows of mcqa.

HF_TOKEN=… python benchmarks/gpqa_diamond/prepare.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase

from nemo_gym import convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.mcqa.rows import choice_row, lettered

OUTPUT = Path(__file__).parent / "data" / "gpqa_diamond.jsonl"
SOURCE = HuggingFace("Idavidrein/gpqa", "gpqa_diamond.csv", gated=True)
OPTIONS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
COLUMNS = dict.fromkeys(("Question", *OPTIONS, "Subdomain", "High-level domain"), str)


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path. The order of the options is always the same."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(row: TableRow) -> JsonObject:
    question, options = row.fields["Question"], [row.fields[column] for column in OPTIONS]
    order = shuffled(question, options)
    return choice_row(
        question,
        lettered(options[place] for place in order),
        ascii_uppercase[order.index(0)],
        where=row.place,
        grading_mode="lenient_answer_colon_md",
        subset=row.fields["High-level domain"],
        metadata={"subdomain": row.fields["Subdomain"]},
    )


def shuffled(question: str, options: Sequence[str]) -> list[int]:
    """Return the indices of the options in an order that depends only on the question and its options."""
    # Hashes, unlike a random generator's shuffle, are the same in every version of Python.
    hashes = [hashlib.sha256(f"{question}\0{option}".encode()).digest() for option in options]
    return sorted(range(len(options)), key=hashes.__getitem__)


if __name__ == "__main__":
    run_prepare(prepare)
