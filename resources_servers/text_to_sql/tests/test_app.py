"""Rewards of text_to_sql: equal results, harmful queries, and the judge."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from nemo_gym import InvalidTask, JudgeFailed, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, reply, rollout, serving
from resources_servers.text_to_sql.app import TextToSqlServer
from resources_servers.text_to_sql.oracle import solve
from resources_servers.text_to_sql.prepare import prepare, question_about
from resources_servers.text_to_sql.schemas import SCHEMAS
from resources_servers.text_to_sql.sql import SqlLimits, run_query

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent.parent
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
JUDGE = {"type": "responses_api_models", "name": "judge_model"}

CONTEXT = "CREATE TABLE t (a INTEGER, b TEXT);\nINSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, 'y'), (3, NULL);"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
HEAVY = (
    "WITH RECURSIVE n(i, s) AS (SELECT 1, hex(zeroblob(400000)) UNION ALL SELECT i + 1, s || 'a' FROM n LIMIT 9999)"
)


def fenced(sql):
    return f"```sql\n{sql}\n```"


async def graded(server, answer, **row):
    row = {"sql": "SELECT a FROM t", "sql_context": CONTEXT, **row}
    async with rollout(server, **row) as attempt:
        return (await attempt.verify(reply(answer))).model_dump()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    """Start one server with its workers for all tests."""
    started = make_server(TextToSqlServer, query_timeout_secs=10)
    async with serving(started):
        yield started


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda row: row["uuid"])
async def test_example_rewards_its_oracle_but_not_silence(server, example):
    assert (await graded(server, solve(example)[0], **example))["reward"] == 1.0
    assert (await graded(server, "", **example))["reward"] == 0.0


@pytest.mark.parametrize(
    ("reference", "answer", "reward"),
    [
        ("SELECT a FROM t", "SELECT a AS other FROM t ORDER BY a DESC", 1.0),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC", 0.0),
        ("SELECT a, b FROM t ORDER BY a", "SELECT a, b FROM t ORDER BY a, b DESC", 1.0),
        ("SELECT a, b FROM t ORDER BY b IS NULL", "SELECT a, b FROM t ORDER BY b IS NULL, a DESC", 1.0),
        ("SELECT a, b FROM t ORDER BY b IS NULL", "SELECT a, b FROM t ORDER BY a DESC", 0.0),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", "SELECT a FROM t ORDER BY a DESC", 1.0),
        (
            "SELECT a FROM t WHERE b <> 'order by' -- order by a",
            "SELECT a FROM t WHERE b <> 'order by' ORDER BY a DESC",
            1.0,
        ),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t", 0.0),
        ("SELECT a, b FROM t", "SELECT b, a FROM t", 0.0),
        ("SELECT a FROM t", "SELECT a, b FROM t", 0.0),
        ("SELECT b FROM t", "SELECT COALESCE(b, '') FROM t", 0.0),
        ("SELECT SUM(a) FROM t", "SELECT SUM(a) * 1.0 FROM t", 1.0),
        ("SELECT AVG(a) FROM t", "SELECT SUM(a) * 1.0 / COUNT(*) + 1e-12 FROM t", 1.0),
        ("SELECT AVG(a) FROM t", "SELECT 2.001", 0.0),
        ("SELECT 9007199254740993", "SELECT 9007199254740992", 0.0),
        ("SELECT 9e9", "SELECT 9000000000", 1.0),
        ("SELECT 9000000001.0", "SELECT 9000000002", 0.0),
        ("SELECT 9000000000.0000001", "SELECT 9000000000", 1.0),
        ("SELECT 1e300", "SELECT 1e300 + 1", 1.0),
        ("SELECT '1'", "SELECT 1", 0.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT a FROM t WHERE a >= 10", 1.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT 1 WHERE 0", 0.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT a, b FROM t WHERE a > 9", 0.0),
        ("SELECT a FROM t;", "SELECT a FROM t;", 1.0),
    ],
)
async def test_equal_results_are_rewarded(server, reference, answer, reward):
    result = await graded(server, fenced(answer), sql=reference)
    assert result["reward"] == reward
    assert result["extracted_sql"] == answer
    assert result["failure_reason"] == (None if reward else "different_results")
    assert (result["judge_passed"], result["judge_evaluations"]) == (None, [])


LUCKY = [
    ("SELECT SUM(a) FROM t", "SELECT 8"),
    ("SELECT AVG(a) FROM t", "SELECT SUM(a) / 4.0 FROM t"),
    ("SELECT COUNT(*) FROM t WHERE b IS NULL", "SELECT 1"),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t"),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY b IS NULL, b"),
    ("SELECT a FROM t WHERE a > 9", "SELECT a FROM t WHERE a > 8"),
    ("SELECT b FROM t WHERE a > 2", "SELECT NULL"),
    ("SELECT MAX(a) FROM t", "SELECT COUNT(DISTINCT a) FROM t"),
]


@pytest.mark.parametrize(("reference", "answer"), LUCKY)
async def test_query_right_for_visible_rows_only_earns_nothing(server, reference, answer):
    result = await graded(server, fenced(answer), sql=reference)
    reads_a_table = "FROM t" in answer
    expected = "different_results: with other rows" if reads_a_table else "different_results"
    assert (result["reward"], result["failure_reason"]) == (0.0, expected)
    assert result["why"] == f"the result differs from the reference's{' with other rows' if reads_a_table else ''}"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("SELECT a FROM t", 1.0),
        ("with x as (select a from t) select * from x", 1.0),
        ("The query is SELECT a FROM t", 0.0),
        ("```sql\nSELECT 1\n```\nor rather\n```\nSELECT a FROM t\n```", 1.0),
        ("```sql\nSELECT a FROM t", 0.0),
        ("", 0.0),
        ("```sql\n```", 0.0),
        (fenced("SELECT a FROM t;;"), 1.0),
        (fenced("SELECT a FROM t;\n;\n-- done"), 1.0),
        (fenced("SELECT a FROM t; /* a; b */ ;"), 1.0),
        (fenced("SELECT a FROM t;;SELECT a FROM t"), 0.0),
        (fenced("SELECT a, ';;' FROM t"), 0.0),
    ],
)
async def test_query_is_last_block_or_whole_answer(server, answer, reward):
    assert (await graded(server, answer))["reward"] == reward


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (fenced("SELECT a FROM t"), "the query has the same result as the reference"),
        (fenced("SELECT 1"), "the result differs from the reference's"),
        (fenced("SELECT c FROM t"), "SQLite cannot run the query: 'no such column: c'"),
        ("I do not know.", "the answer does not contain SQL"),
    ],
)
async def test_why_names_the_difference(server, answer, why):
    assert (await graded(server, answer))["why"] == why


HARM = [
    "DROP TABLE t",
    "DELETE FROM t",
    "UPDATE t SET a = 0",
    "INSERT INTO t VALUES (4, 'z')",
    "CREATE TABLE u AS SELECT 1",
    "CREATE TEMP VIEW v AS SELECT 1",
    "ATTACH '/tmp/x.db' AS x",
    "VACUUM INTO '/tmp/y.db'",
    "PRAGMA journal_mode = OFF",
    "SELECT load_extension('/tmp/x.so')",
    "SELECT readfile('/etc/passwd')",
    "SELECT a FROM t; SELECT a FROM t",
    "SELECT",
    "-- nothing",
    "SELECT '\0'",
    "SELECT no_such_column FROM t",
    "BEGIN",
    f"{ENDLESS} SELECT COUNT(*) FROM n",
    f"{ENDLESS} SELECT i FROM n",
    "SELECT zeroblob(2000000000)",
    "SELECT printf('%.*c', 2000000000, 'x')",
    f"{HEAVY} SELECT * FROM n ORDER BY s DESC",
    f"{HEAVY} SELECT s FROM n",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + " + ".join(["1"] * 50_000),
]


@pytest.mark.parametrize("sql", HARM, ids=lambda sql: sql[:60])
async def test_harmful_queries_earn_nothing_and_block_nothing(server, sql):
    async with rollout(server, sql="SELECT a FROM t", sql_context=CONTEXT) as attempt:
        bad, *good = await asyncio.gather(
            attempt.verify(reply(fenced(sql))), *(attempt.verify(reply(fenced("SELECT a FROM t"))) for _ in range(3))
        )
    assert bad.reward == 0.0
    assert bad.failure_reason
    assert [each.reward for each in good] == [1.0] * 3


@pytest.mark.parametrize("answer", [fenced("SELECT a FROM t"), "", "I do not know."])
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"sql": "SELECT c FROM t"}, "no such column"),
        ({"sql": "DELETE FROM t"}, "not authorized"),
        ({"sql_context": "CREATE SCHEMA s;"}, "the script that creates the database"),
        ({"sql_context": "ATTACH '/tmp/x.db' AS x;"}, "the script that creates the database"),
        ({"sql": f"{ENDLESS} SELECT COUNT(*) FROM n"}, "(too many steps|the query did not finish within)"),
    ],
)
async def test_faulty_row_raises_invalid_task(server, row, why, answer):
    with pytest.raises(InvalidTask, match=f"text_to_sql: {next(iter(row))}: .*{why}"):
        await graded(server, answer, **row)


@pytest.mark.parametrize(
    ("replies", "settings", "reward"),
    [
        (["[[A=B]]"], {}, 1.0),
        (["[[A!=B]]"], {}, 0.0),
        (["[[A=B]]", "[[A=B]]"], {"check_twice_swap": True}, 1.0),
        (["[[A=B]]", "[[A!=B]]"], {"check_twice_swap": True, "reward_if_swap_fails": 0.25}, 0.25),
        (["[[A!=B]]"], {"check_twice_swap": True, "reward_if_swap_fails": 0.25}, 0.0),
    ],
)
async def test_judge_decides_if_the_reference_fails(replies, settings, reward):
    model = FakeModel(replies)
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE, **settings)
    result = await graded(server, fenced("SELECT 1"), sql="SELECT TOP 1 a FROM t", sql_prompt="The first a?")
    assert (result["reward"], result["judge_passed"]) == (reward, reward == 1.0)
    decided = "order_decides (reward_if_swap_fails)" if reward == 0.25 else replies[-1]
    assert result["why"] == f"the judge's verdict is {decided}"
    assert len(result["judge_evaluations"]) == len(replies)
    asked = model.requests[0]["input"][-1]["content"]
    for part in ("The first a?", "SELECT TOP 1 a FROM t", "SELECT 1", "CREATE TABLE t"):
        assert part in asked


async def test_unclear_verdict_fails_the_rollout():
    server = make_server(TextToSqlServer, model=FakeModel(["who knows"]), judge_model_server=JUDGE)
    with pytest.raises(JudgeFailed, match="did not decide on one of the labels"):
        await graded(server, fenced("SELECT 1"), sql="SELECT TOP 1 a FROM t")


def test_prompt_in_server_folder_comes_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    server = make_server(TextToSqlServer, judge_model_server=JUDGE, judge_prompt_template_fpath="prompts/judge.md")
    assert server.judge is not None


async def test_judge_is_not_asked_without_a_query():
    model = FakeModel(["[[A=B]]"])
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE)
    result = await graded(server, "I do not know.", sql="SELECT TOP 1 a FROM t")
    assert (result["reward"], result["failure_reason"], model.requests) == (0.0, "no_sql", [])


async def test_judge_is_asked_only_if_results_are_unclear():
    model = FakeModel(["[[A!=B]]"])
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE)
    assert (await graded(server, fenced("SELECT a FROM t")))["reward"] == 1.0
    assert (await graded(server, fenced("SELECT b FROM t")))["reward"] == 0.0
    assert model.requests == []
    empty = "SELECT a FROM t WHERE a > 9"
    assert (await graded(server, fenced(empty), sql=empty))["failure_reason"] == "judge: agreed"
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("dialect", "answer", "asked"),
    [
        ("postgresql", "SELECT a::int FROM t", 1),
        ("PostgreSQL", "SELECT a FROM t WHERE NOW() > b", 1),
        ("mysql", "SELECT no_such_column FROM t", 0),
        ("mysql", f"{ENDLESS} SELECT max(i) FROM n", 0),
        ("SQLite", "SELECT a::int FROM t", 0),
    ],
)
async def test_judge_decides_on_syntax_of_other_dialects(dialect, answer, asked):
    model = FakeModel(["[[A=B]]"])
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE)
    result = await graded(server, fenced(answer), sql_dialect=dialect)
    assert (result["reward"], len(model.requests)) == (float(asked), asked)
    assert (result["failure_reason"] or "judged").startswith("judged" if asked else "query_failed: ")


async def test_reasoning_is_ignored(server):
    assert (await graded(server, "<think>SELECT 1?</think>SELECT a FROM t"))["reward"] == 1.0
    assert (await graded(server, f"<think>\n{fenced('SELECT a FROM t')}"))["failure_reason"] == "no_sql"


async def test_run_query_returns_rows_and_errors():
    server = make_server(TextToSqlServer, offers_run_query=True)
    assert [each.name for each in server.tools()] == ["run_query"]
    async with rollout(server, sql="SELECT a FROM t", sql_context=CONTEXT) as attempt:
        found = await attempt.call("run_query", query="SELECT a, b FROM t ORDER BY a")
        assert found.split("\n") == ["a | b", "1 | x", "2 | y", "2 | y", "3 | NULL", "(4 rows in all)"]
        assert "not authorized" in await attempt.call("run_query", query="DELETE FROM t")
        assert "no such table" in await attempt.call("run_query", query="SELECT * FROM u")
        assert (await attempt.verify(reply(*attempt.calls, fenced("SELECT a FROM t")))).reward == 1.0


def test_run_query_is_not_offered_by_default(server):
    assert server.tools() == []


async def test_rollouts_query_their_own_databases():
    server = make_server(TextToSqlServer, offers_run_query=True)
    one = rollout(server, sql_context="CREATE TABLE one (a);")
    two = rollout(server, sql_context="CREATE TABLE two (b);")
    async with one as first, two as second:
        assert "no such table" in await second.call("run_query", query="SELECT * FROM one")
        assert (await first.call("run_query", query="SELECT * FROM one")).startswith("a\n")


def constant(row):
    """Return a query of constants that finds the same as the row's reference in the row's database."""
    found = run_query(row["sql_context"], row["sql"], SqlLimits()).rows
    texts = [", ".join("NULL" if value is None else repr(value) for value in each) for each in found]
    return "VALUES " + ", ".join(f"({text})" for text in texts)


async def test_prepared_rows_are_reproducible_and_solvable(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=60, seed=7)))
    again = prepare(tmp_path / "again.jsonl", count=60, seed=7)
    other = prepare(tmp_path / "other.jsonl", count=60, seed=8)
    assert again.read_bytes() == (tmp_path / "rows.jsonl").read_bytes() != other.read_bytes()
    assert len({row["uuid"] for row in rows}) == 60
    server = make_server(TextToSqlServer)
    async with rollout(server) as attempt:
        for row in rows[::3]:
            assert (await attempt.verify(reply(*solve(row)), **row)).reward == 1.0
            assert (await attempt.verify(reply("SELECT 1 WHERE 0"), **row)).reward == 0.0
            assert (await attempt.verify(reply(constant(row)), **row)).reward == 0.0


def test_splits_have_no_question_in_common(tmp_path):
    made = [
        list(read_rows(prepare(tmp_path / "rows.jsonl", count=count, seed=seed, split=split)))
        for split, count, seed in (("train", 2000, 0), ("validation", 200, 1))
    ]
    for seen in (prompt_of, lambda row: (row["metadata"]["schema"], row["sql"])):
        train, validation = ({seen(row) for row in rows} for rows in made)
        assert (len(train), len(validation), len(train & validation)) == (2000, 200, 0)


def prompt_of(row):
    return row["responses_create_params"]["input"][0]["content"]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_reference_queries_quote_city_names(schema):
    chance = random.Random(1)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.tables)
        for _ in range(50):
            connection.execute(question_about(schema, chance, ["Xi'an"]).sql)


def test_databases_quote_city_names(tmp_path):
    rows = read_rows(prepare(tmp_path / "rows.jsonl", count=300))
    assert any("'Xi''an'" in row["sql_context"] for row in rows)


def test_prepare_runs_from_the_command_line(tmp_path):
    run_prepare(prepare, ["--output", str(tmp_path / "rows.jsonl"), "--count", "3"])
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 3
