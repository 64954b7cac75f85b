"""Fetch BIRD's development set, and write its questions as rows of text_to_sql.

python benchmarks/bird/prepare.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePosixPath

from nemo_gym import DataError, convert_each, convert_table, run_prepare
from nemo_gym.data.archives import extract
from nemo_gym.data.sources import Url, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.text_to_sql.questions import place_of_database, row_of

OUTPUT = Path(__file__).parent / "data" / "bird.jsonl"
ARCHIVE = "https://bird-bench.oss-cn-beijing.aliyuncs.com/dev.zip"
QUESTIONS, DATABASES = "dev.json", "dev_databases.zip"
COLUMNS = {"question_id": int, "db_id": str, "question": str, "evidence": str, "SQL": str, "difficulty": str}


def prepare(output: Path = OUTPUT, archive: str = ARCHIVE, *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path. The databases are stored in `databases` next to it.

    archive: the address or the path of the zip archive with dev.json and the databases
    """
    source = output.parent / "source"
    path = fetch(Url(archive), folder=source) if "://" in archive else Path(archive).expanduser()
    if not path.is_file():
        raise DataError(f"archive: file '{archive}' not found. Pass the address or the path of BIRD's dev.zip.")
    extracted = {each.name: each for each in extract(path, source, _place)}
    if QUESTIONS not in extracted:
        raise DataError(f"{path}: the archive does not contain {QUESTIONS}. Pass BIRD's development set as archive.")
    questions = list(convert_table(extracted[QUESTIONS], COLUMNS, lambda row: row, skip_bad=skip_bad))
    databases = output.parent / "databases"
    ids = {question.fields["db_id"] for question in questions}
    # The databases are in an archive of their own in the archive.
    extract(extracted.get(DATABASES, path), databases, partial(place_of_database, ids=ids))
    (source / DATABASES).unlink(missing_ok=True)
    write_rows(output, convert_each(questions, partial(_row, databases), skip_bad=skip_bad))
    return output


def _place(path: PurePosixPath) -> str | None:
    return path.name if path.name in (QUESTIONS, DATABASES) else None


def _row(databases: Path, row: TableRow) -> JsonObject:
    question = row.fields
    return {
        "question_id": question["question_id"],
        "difficulty": question["difficulty"],
        **row_of(
            databases,
            question["db_id"],
            question["question"],
            question["SQL"],
            evidence=question["evidence"],
            where=row.place,
        ),
    }


if __name__ == "__main__":
    run_prepare(prepare)
