"""Turn the questions into the rows of this benchmark: ng eval prepare --benchmark my_environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym.data.made import record_inputs
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import write_rows

FOLDER = Path(__file__).parent
OUTPUT = FOLDER / "data" / "my_environment.jsonl"
# To download a file instead, see fetch() in nemo_gym.data.sources.
SOURCE = FOLDER / "questions.csv"
COLUMNS = {"question": str, "answer": str, "subject": str}


def prepare(output: Path = OUTPUT) -> Path:
    """Write one row per question and return the path."""
    write_rows(output, _rows(SOURCE))
    # If one of these files changes, `ng eval run` makes the rows again.
    record_inputs(output, SOURCE, Path(__file__))
    return output


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    for question in read_table(source, COLUMNS):
        yield {
            "question": question["question"],
            "expected_answer": question["answer"],
            "subset": question["subject"],
        }


if __name__ == "__main__":
    prepare()
