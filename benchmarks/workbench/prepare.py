"""Fetch WorkBench's tables and queries, and write its queries as rows of workplace_assistant.

python benchmarks/workbench/prepare.py
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from nemo_gym import DataError, ToolError, convert_each, run_prepare
from nemo_gym.data.sources import GitHub, fetch
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.workplace_assistant.csv_files import read_company
from resources_servers.workplace_assistant.database import Company, Database
from resources_servers.workplace_assistant.prepare import calls_of
from resources_servers.workplace_assistant.replay import UnreadableCall, try_call
from resources_servers.workplace_assistant.workbench import Query, errand_of, read_queries

OUTPUT = Path(__file__).parent / "data" / "workbench.jsonl"
REPOSITORY, BRANCH = "olly-styles/WorkBench", "main"
PROCESSED, RAW = "data/processed", "data/raw"
QUERIES = {
    "analytics": None,
    "calendar": "fefb61e1a78bc2042befdb5703287a398aa4d8e8749bbf8badce8e6dd3ee9185",
    "customer_relationship_manager": None,
    "email": "f260be0ab34983675dbee1c313662e3882464198ac9146e1fa86b1920aa93b86",
    "multi_domain": None,
    "project_management": None,
}
"""The domains, with the SHA-256 of the files of queries that are known, in the first layout."""
LAYOUTS = ("queries_and_answers", "tasks_and_outcomes")
"""The names of the folder of queries. In the second, about a seventh of the tasks are corrected."""
TABLES = {
    "analytics_data.csv": "9f02ac1311812721fa4d521aaf91e2d3a4320d1409cfd5b43f130ee476cae709",
    "calendar_events.csv": "9f029b17eb05e6b837946b50f15b63e59c939a544ba293075d98ac301554d636",
    "customer_relationship_manager_data.csv": "8632a748512e2c4e1ad7ffa6669efb1ce73bcfe9600f976a99af6e6c46e79297",
    "emails.csv": "35c0a3af40acddc9aa48d0289e75cc44785e33abedfa3e48ca3f7b2fb679f4c3",
    "project_tasks.csv": "ef4941767aa7ec5c85f481d90d9fc9aef9f7424d972701d2149e0ef55e56b07d",
}
ADDRESSES = ("email_addresses.csv", "d9227ee1a072e528c3735afea166a56e5d2e88f4c98dc7a0beba035ff0efcc2a")

logger = logging.getLogger(__name__)


def prepare(output: Path = OUTPUT, revision: str | None = None, *, skip_bad: bool = False) -> Path:
    """Write one row per query, and return the output path. The tables are stored in `tables` next to it.

    revision: a commit, tag or branch of WorkBench; by default the content with the known hashes
    """
    company = read_company(_fetch_tables(output.parent / "tables", revision))
    folder = output.parent / "queries"
    layout, paths = _fetch_queries(folder, revision)
    logger.info("WorkBench's files in the layout %s, revision %s", layout, revision or BRANCH)
    write_rows(output, _rows(paths, company, f"{layout}@{revision or BRANCH}", skip_bad=skip_bad))
    return output


def _fetch_queries(folder: Path, revision: str | None) -> tuple[str, list[Path]]:
    """Fetch the files of queries in the first layout that the revision has. Return the layout and the paths."""
    first, *others = LAYOUTS
    try:
        return first, _fetch_layout(first, folder, revision)
    except DataError as error:
        for layout in others:
            try:
                return layout, _fetch_layout(layout, folder, revision)
            except DataError:
                continue
        raise error


def _fetch_layout(layout: str, folder: Path, revision: str | None) -> list[Path]:
    return [
        _fetch(f"{PROCESSED}/{layout}/{domain}_{layout}.csv", pin if layout == LAYOUTS[0] else None, revision, folder)
        for domain, pin in QUERIES.items()
    ]


def _fetch_tables(folder: Path, revision: str | None) -> Path:
    for name, pin in TABLES.items():
        _fetch(f"{PROCESSED}/{name}", pin, revision, folder)
    name, pin = ADDRESSES
    try:
        _fetch(f"{PROCESSED}/{name}", pin, revision, folder)
    except DataError:
        # The list of addresses is an input of the generator, so a revision may have it among the raw data.
        _fetch(f"{RAW}/{name}", pin, revision, folder)
    return folder


def _fetch(path: str, pin: str | None, revision: str | None, folder: Path) -> Path:
    # Another revision may have another content.
    return fetch(GitHub(REPOSITORY, path, revision or BRANCH, None if revision else pin), folder=folder)


def _rows(paths: list[Path], company: Company, version: str, *, skip_bad: bool) -> Iterator[JsonObject]:
    failing = 0

    def convert(numbered: tuple[int, Query]) -> JsonObject:
        nonlocal failing
        number, query = numbered
        errand = errand_of(query)
        calls = calls_of(errand)
        if refused := _refused(calls, company, query.where):
            failing += 1
            logger.warning(
                "%s: a tool rejects a call of the answer, so the row will be an invalid task: %s", query.where, refused
            )
        return {
            "id": number,
            "query": errand.request,
            "ground_truth": calls,
            "category": errand.category,
            "environment_name": "workbench",
            "workbench_version": version,
        }

    yield from convert_each(enumerate(read_queries(paths)), convert, skip_bad=skip_bad)
    if failing:
        logger.warning("%d queries have answers with rejected calls", failing)


def _refused(calls: list[dict[str, str]], company: Company, where: str) -> str | None:
    """Return the message of the first call that a tool refuses. Raises `DataError` for an invalid call."""
    database = Database(company)
    refused: list[str] = []
    for call in calls:
        try:
            try_call(database, **call)
        except ToolError as error:
            refused.append(f"{call['name']}: {error}")
        except UnreadableCall as error:
            raise DataError(f"{where}: answer: {error}. Name another revision.") from error
    return refused[0] if refused else None


if __name__ == "__main__":
    run_prepare(prepare)
