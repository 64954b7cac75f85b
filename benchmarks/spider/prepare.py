"""Fetch Spider's development questions, extract its databases, and write rows of text_to_sql.

python benchmarks/spider/prepare.py --databases spider_data.zip
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from nemo_gym import DataError, convert_each, convert_table, run_prepare
from nemo_gym.data.archives import extract
from nemo_gym.data.sources import HuggingFace, Url, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.text_to_sql.questions import place_of_database, row_of

OUTPUT = Path(__file__).parent / "data" / "spider.jsonl"
QUESTIONS = HuggingFace("xlangai/spider", "spider/validation-00000-of-00001.parquet")
COLUMNS = {"db_id": str, "question": str, "query": str}
HIDDEN = "test_database"
"""The folder of databases for the hidden test set."""


def prepare(output: Path = OUTPUT, databases: Sequence[str] = (), *, skip_bad: bool = False) -> Path:
    """Write one row per question, and return the output path. The databases are stored in `databases` next to it.

    databases: the address or the path of a zip archive with databases, Spider's own or the test suites; repeat the
        flag for both
    """
    path = fetch(QUESTIONS, folder=output.parent / "source")
    questions = list(convert_table(path, COLUMNS, lambda row: row, skip_bad=skip_bad))
    folder = output.parent / "databases"
    ids = {each.fields["db_id"] for each in questions}
    _extract([databases] if isinstance(databases, str) else databases, folder, ids)
    write_rows(output, convert_each(questions, partial(_row, folder), skip_bad=skip_bad))
    return output


def _extract(archives: Sequence[str], folder: Path, ids: Collection[str]) -> None:
    def place(path: PurePosixPath) -> Path | None:
        return None if HIDDEN in path.parts else place_of_database(path, ids)

    for archive in archives:
        path = fetch(Url(archive), folder=folder.parent / "source") if "://" in archive else Path(archive).expanduser()
        if not path.is_file():
            raise DataError(f"databases: file '{archive}' not found. Pass the address or the path of a zip archive.")
        extract(path, folder, place)
    if not archives and not all((folder / db_id).is_dir() for db_id in ids):
        raise DataError(
            f"{folder}: Spider's databases are missing, and a program cannot download them. Download the archive that "
            "https://yale-lily.github.io/spider links, and pass its path: --prepare_script_args.databases <zip>. For "
            "several databases per schema, add the archive of https://github.com/taoyds/test-suite-sql-eval."
        )


def _row(folder: Path, row: TableRow) -> JsonObject:
    question = row.fields
    made = row_of(folder, question["db_id"], question["question"], question["query"], where=row.place)
    return {"question_id": row.number - 1, **made}


if __name__ == "__main__":
    run_prepare(prepare)
