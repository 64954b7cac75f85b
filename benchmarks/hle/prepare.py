"""Fetch Humanity's Last Exam, and write its questions as rows of equivalence_llm_judge, with their images.

HF_TOKEN=… python benchmarks/hle/prepare.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

FOLDER = Path(__file__).parent
SOURCE = HuggingFace("cais/hle", "data/test-00000-of-00001.parquet", gated=True)
TEXTS = ("id", "question", "answer", "answer_type", "category", "raw_subject")
COLUMNS = {**dict.fromkeys(TEXTS, str), "image": str | None}
DATA_URL = "data:image/"


def prepare(output: Path | None = None, *, text_only: bool = False, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path.

    output: the file to write, by default data/hle.jsonl or data/hle_text_only.jsonl
    text_only: leave out questions with an image
    """
    output = output or FOLDER / "data" / f"hle{'_text_only' if text_only else ''}.jsonl"
    path = fetch(SOURCE, folder=output.parent / "source")
    system = (FOLDER / "prompts" / "system.md").read_text("utf-8").strip()
    rows = convert_table(path, COLUMNS, partial(_row, system), skip_bad=skip_bad)
    write_rows(output, (row for row in rows if not (text_only and row["metadata"]["has_image"])))
    return output


def _row(system: str, row: TableRow) -> JsonObject:
    fields = row.fields
    question, answer, image = fields["question"].strip(), fields["answer"].strip(), fields["image"] or ""
    if not question or not answer:
        column = "answer" if question else "question"
        raise DataError(f"{row.place}: column '{column}' is empty. Fetch another revision.")
    if image and not image.startswith(DATA_URL):
        raise DataError(f"{row.place}: column 'image' must be empty or begin with '{DATA_URL}', found '{image[:40]}'.")
    return {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": system},
                {"role": "user", "content": _content(question, image)},
            ]
        },
        "question": question,
        "expected_answer": answer,
        "subset": fields["category"],
        "metadata": {
            "id": fields["id"],
            "answer_type": fields["answer_type"],
            "raw_subject": fields["raw_subject"],
            "has_image": bool(image),
        },
    }


def _content(question: str, image: str) -> str | list[dict[str, Any]]:
    if not image:
        return question
    return [
        {"type": "input_text", "text": question},
        {"type": "input_image", "image_url": image, "detail": "auto"},
    ]


if __name__ == "__main__":
    run_prepare(prepare)
