"""Rows whose database is a file in `database_dir`."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest
import pytest_asyncio

from nemo_gym import DataError, InvalidTask
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.text_to_sql.app import TextToSqlServer
from resources_servers.text_to_sql.questions import place_of_database, row_of

TABLES = "CREATE TABLE t (a INTEGER, b TEXT);"
ROWS = f"{TABLES}\nINSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, 'y'), (3, NULL);"
OTHER_ROWS = f"{TABLES}\nINSERT INTO t VALUES (5, 'x'), (9, 'z');"


def write(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write three schemas: with one database, with three of two forms, and with a file that is not a database."""
    folder = tmp_path_factory.mktemp("databases")
    write(folder / "one" / "one.sqlite", ROWS)
    write(folder / "many" / "many.sqlite", ROWS)
    write(folder / "many" / "also.sqlite", OTHER_ROWS)
    (folder / "many" / "text.sql").write_text(TABLES)
    (folder / "bad").mkdir()
    (folder / "bad" / "bad.sqlite").write_text("This is not a database, although it is long enough to be one." * 20)
    (folder / "empty").mkdir()
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder):
    """Start one server with its workers for all tests."""
    started = make_server(TextToSqlServer, database_dir=folder, query_timeout_secs=60, query_rows=1000)
    async with serving(started):
        yield started


async def graded(server, answer, db_id="one", sql="SELECT a FROM t"):
    async with rollout(server, sql=sql, db_id=db_id) as attempt:
        return (await attempt.verify(reply(f"```sql\n{answer}\n```"))).model_dump()


async def test_results_on_a_file_are_compared(server):
    cases = [
        ("SELECT a FROM t", "SELECT a FROM t ORDER BY b", 1.0),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC", 0.0),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t", 0.0),
        ("SELECT SUM(a) FROM t", "SELECT SUM(a) FROM t WHERE a < 100", 1.0),
        ("SELECT SUM(a) FROM t", "SELECT 8", 0.0),
        ("SELECT SUM(a) FROM t", "SELECT 8 FROM sqlite_master", 0.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT a FROM t WHERE a > 8", 1.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT 1 WHERE 0", 0.0),
    ]
    wrong = [case for case in cases if (await graded(server, case[1], sql=case[0]))["reward"] != case[2]]
    assert wrong == []


async def test_every_database_of_a_schema_counts(server):
    right = await graded(
        server, "SELECT a FROM t WHERE b IS 'x' OR a = 9", db_id="many", sql="SELECT a FROM t WHERE b IN ('x', 'z')"
    )
    assert right["reward"] == 1.0
    for answer in (
        "SELECT SUM(a) - 0 FROM t WHERE a < 5",
        "SELECT 8 FROM t LIMIT 1",
        "SELECT a * 8 FROM t WHERE a = 1",
    ):
        found = await graded(server, answer, db_id="many", sql="SELECT SUM(a) FROM t")
        assert (found["reward"], found["failure_reason"]) == (0.0, "different_results: with other rows")


async def test_tables_count_only_on_the_first_database(server):
    """The third database is empty, so there any answer without rows is right."""
    answer = "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM sqlite_master)"
    assert (await graded(server, answer, db_id="many"))["reward"] == 1.0


HOSTILE = [
    "ATTACH '{folder}/new.sqlite' AS x",
    "VACUUM INTO '{folder}/new.sqlite'",
    "PRAGMA writable_schema = 1",
    "PRAGMA table_info(t)",
    "SELECT * FROM pragma_table_info('t')",
    "INSERT INTO t VALUES (1, 'x')",
    "DELETE FROM t RETURNING a",
    "UPDATE t SET a = 1",
    "DROP TABLE t",
    "CREATE TABLE u (a)",
    "CREATE TEMP TABLE u AS SELECT a FROM t",
    "BEGIN EXCLUSIVE",
    "SELECT a FROM t; SELECT a FROM t",
    "SELECT a FROM t; DROP TABLE t",
    "SELECT a FROM t /* */; -- */ \nSELECT 1",
    "EXPLAIN SELECT a FROM t",
    "SELECT load_extension('x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('{folder}/new.txt', 'x')",
    "SELECT sql FROM sqlite_master",
    TABLES,
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "SELECT a FROM t UNION ALL SELECT a.a FROM t a, t b, t c, t d, t e, t f",
    "SELECT zeroblob(900000000) FROM t",
    "-- SELECT a FROM t",
    "/* SELECT a FROM t",
]


async def test_hostile_queries_earn_nothing_and_leave_no_trace(server, folder):
    def state():
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}

    before = state()
    rewards = {query: (await graded(server, query.replace("{folder}", str(folder))))["reward"] for query in HOSTILE}
    assert {query: reward for query, reward in rewards.items() if reward} == {}
    assert state() == before
    assert (await graded(server, "SELECT a FROM t"))["reward"] == 1.0


async def test_reading_a_file_needs_no_lock(server, folder):
    with closing(sqlite3.connect(folder / "one" / "one.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert (await graded(server, "SELECT a FROM t"))["reward"] == 1.0


async def test_large_sorts_do_not_fill_the_disk(server):
    query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 900) "
        "SELECT length(s) FROM (SELECT i, hex(zeroblob(400000)) || i s FROM n ORDER BY s DESC LIMIT -1)"
    )
    assert (await graded(server, query))["failure_reason"] == "query_failed: too much memory"


@pytest.mark.parametrize(
    ("db_id", "problem"),
    [
        ("other", "/other contains neither \\*.sqlite nor \\*.sql. Prepare the benchmark"),
        ("empty", "/empty contains neither"),
        ("../one", "db_id: '../one' is not the name of a folder"),
        ("..", "db_id: '..' is not the name of a folder"),
        ("", "db_id: '' is not the name of a folder"),
        ("x" * 300, "db_id: 'x+' is not the name of a folder"),
        ("a\0b", "is not the name of a folder"),
        ("bad", "db_id: SQLite cannot run the reference \\(.*bad.sqlite: file is not a database\\)"),
    ],
)
async def test_missing_databases_fail_the_rollout(server, db_id, problem):
    with pytest.raises(InvalidTask, match=problem):
        await graded(server, "SELECT a FROM t", db_id=db_id)


async def test_database_dir_is_required_for_its_rows():
    with pytest.raises(InvalidTask, match="db_id: set database_dir"):
        await graded(make_server(TextToSqlServer), "SELECT a FROM t")


async def test_run_query_reads_the_file(folder):
    server = make_server(TextToSqlServer, database_dir=folder, offers_run_query=True)
    async with serving(server), rollout(server, sql="SELECT 1", db_id="one") as attempt:
        assert await attempt.call("run_query", query="SELECT MAX(a) AS most FROM t") == "most\n3\n(1 rows in all)"
        assert "not authorized" in await attempt.call("run_query", query="DROP TABLE t")


def test_pass_rates_are_split_by_difficulty(server):
    tasks = [[{"difficulty": "simple", "reward": 1.0}], [{"difficulty": "hard", "reward": 0.0}]]
    found = server.compute_metrics(tasks)
    assert [found[f"{subset}pass@1/accuracy"] for subset in ("", "simple/", "hard/")] == [50.0, 100.0, 0.0]


def test_databases_in_an_archive_are_found():
    cases = {
        "dev/dev_databases/one/one.sqlite": "one/one.sqlite",
        "database/one/other.db": "one/other.sqlite",
        "database/two/two.sqlite": None,
        "__MACOSX/database/one/._one.sqlite": None,
        "database/one/schema.sql": None,
    }
    found = {name: place_of_database(PurePosixPath(name), {"one"}) for name in cases}
    assert found == {name: place and Path(place) for name, place in cases.items()}


def test_incomplete_questions_are_reported(folder):
    cases = [
        ("../one", "q", "SELECT 1", "here: db_id: '../one' is not the name"),
        ("one", " ", "SELECT 1", "here: the question or its query is blank"),
        ("one", "q", "", "here: the question or its query is blank"),
        ("two", "q", "SELECT 1", "here: db_id: the archive does not contain two/two.sqlite"),
        ("bad", "q", "SELECT 1", "bad.sqlite: not an SQLite database"),
    ]
    for db_id, question, sql, problem in cases:
        with pytest.raises(DataError, match=problem):
            row_of(folder, db_id, question, sql, where="here")
    row = row_of(folder, "one", " How many? ", "SELECT 1 ", evidence="a is a number", where="here")
    assert row["sql_prompt"] == "How many?\n\nKnown: a is a number"
    assert (row["sql_context"], row["sql"]) == (TABLES, "SELECT 1")
