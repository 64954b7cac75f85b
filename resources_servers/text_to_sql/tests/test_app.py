"""Rewards of text_to_sql: queries that find the same, and queries that mean harm."""

import asyncio
import time
from pathlib import Path

import pytest
import pytest_asyncio

from nemo_gym import InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import FakeModel, make_server, reply, rollout, serving
from resources_servers.text_to_sql.app import TextToSqlServer
from resources_servers.text_to_sql.oracle import solve
from resources_servers.text_to_sql.prepare import main, prepare

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
    """Up for all tests, and its workers with it."""
    started = make_server(TextToSqlServer, query_timeout_secs=2)
    async with serving(started):
        yield started


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda row: row["uuid"])
async def test_the_reference_of_each_example_earns_everything_and_silence_nothing(server, example):
    assert (await graded(server, solve(example)[0], **example))["reward"] == 1.0
    assert (await graded(server, "", **example))["reward"] == 0.0


@pytest.mark.parametrize(
    ("reference", "answer", "reward"),
    [
        ("SELECT a FROM t", "SELECT a AS other FROM t ORDER BY a DESC", 1.0),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC", 0.0),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY b IS NULL, b", 1.0),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", "SELECT a FROM t ORDER BY a DESC", 1.0),
        ("SELECT a FROM t WHERE b <> 'order by' -- order by a", "SELECT a FROM t WHERE b > '' ORDER BY a DESC", 1.0),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t", 0.0),
        ("SELECT a, b FROM t", "SELECT b, a FROM t", 0.0),
        ("SELECT a FROM t", "SELECT a, b FROM t", 0.0),
        ("SELECT b FROM t", "SELECT COALESCE(b, '') FROM t", 0.0),
        ("SELECT SUM(a) FROM t", "SELECT 8.0", 1.0),
        ("SELECT AVG(a) FROM t", "SELECT SUM(a) / 4.0 + 1e-12 FROM t", 1.0),
        ("SELECT AVG(a) FROM t", "SELECT 2.001", 0.0),
        ("SELECT 9007199254740993", "SELECT 9007199254740992", 0.0),
        ("SELECT 9e9", "SELECT 9000000000", 1.0),
        ("SELECT 9000000001.0", "SELECT 9000000002", 0.0),
        ("SELECT 9000000000.0000001", "SELECT 9000000000", 1.0),
        ("SELECT 1e300", "SELECT 1e300 + 1", 1.0),
        ("SELECT '1'", "SELECT 1", 0.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT a FROM t WHERE a > 8", 1.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT 1 WHERE 0", 0.0),
        ("SELECT a FROM t WHERE a > 9", "SELECT a, b FROM t WHERE a > 9", 0.0),
        ("SELECT a FROM t;", "SELECT a FROM t;", 1.0),
    ],
)
async def test_what_counts_is_what_a_query_finds(server, reference, answer, reward):
    told = await graded(server, fenced(answer), sql=reference)
    assert told["reward"] == reward
    assert told["extracted_sql"] == answer
    assert told["failure_reason"] == (None if reward else "different_results")
    assert (told["judge_passed"], told["judge_evaluations"]) == (None, [])


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
    ],
)
async def test_the_query_is_the_last_block_or_the_whole_answer(server, answer, reward):
    assert (await graded(server, answer))["reward"] == reward


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
async def test_harm_is_graded_0_in_time_while_others_go_on(server, sql):
    async with rollout(server, sql="SELECT a FROM t", sql_context=CONTEXT) as attempt:
        began = time.monotonic()
        bad, *good = await asyncio.gather(
            attempt.verify(reply(fenced(sql))), *(attempt.verify(reply(fenced("SELECT a FROM t"))) for _ in range(3))
        )
        assert time.monotonic() - began < 8
    assert bad.reward == 0.0
    assert bad.failure_reason
    assert [each.reward for each in good] == [1.0] * 3


@pytest.mark.parametrize("answer", [fenced("SELECT a FROM t"), "", "I do not know."])
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"sql": "SELECT c FROM t"}, "no such column"),
        ({"sql": "DELETE FROM t"}, "not authorized"),
        ({"sql_context": "CREATE SCHEMA s;"}, "the script that makes the database"),
        ({"sql_context": "ATTACH '/tmp/x.db' AS x;"}, "the script that makes the database"),
        ({"sql": f"{ENDLESS} SELECT COUNT(*) FROM n"}, "too many steps"),
    ],
)
async def test_a_row_that_cannot_grade_fails_the_rollout_whatever_the_model_answers(server, row, why, answer):
    with pytest.raises(InvalidTask, match=f"text_to_sql: {next(iter(row))}: .*{why}"):
        await graded(server, answer, **row)


@pytest.mark.parametrize(
    ("replies", "settings", "reward"),
    [
        (["[[A=B]]"], {}, 1.0),
        (["[[A!=B]]"], {}, 0.0),
        (["who knows"], {}, 0.0),
        (["[[A=B]]", "[[A=B]]"], {"check_twice_swap": True}, 1.0),
        (["[[A=B]]", "[[A!=B]]"], {"check_twice_swap": True, "reward_if_swap_fails": 0.25}, 0.25),
        (["[[A!=B]]"], {"check_twice_swap": True, "reward_if_swap_fails": 0.25}, 0.0),
    ],
)
async def test_a_judge_decides_where_the_reference_cannot_be_run(replies, settings, reward):
    model = FakeModel(replies)
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE, **settings)
    told = await graded(server, fenced("SELECT 1"), sql="SELECT TOP 1 a FROM t", sql_prompt="The first a?")
    assert (told["reward"], told["judge_passed"]) == (reward, reward == 1.0)
    assert len(told["judge_evaluations"]) == len(replies)
    asked = model.requests[0]["input"][-1]["content"]
    for part in ("The first a?", "SELECT TOP 1 a FROM t", "SELECT 1", "CREATE TABLE t"):
        assert part in asked


def test_a_prompt_is_looked_for_in_the_servers_own_folder_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    server = make_server(TextToSqlServer, judge_model_server=JUDGE, judge_prompt_template_fpath="prompts/judge.md")
    assert server.judge is not None


async def test_without_a_query_no_judge_is_asked():
    model = FakeModel(["[[A=B]]"])
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE)
    told = await graded(server, "I do not know.", sql="SELECT TOP 1 a FROM t")
    assert (told["reward"], told["failure_reason"], model.requests) == (0.0, "no_sql", [])


async def test_a_judge_is_asked_only_where_results_do_not_decide():
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
async def test_a_judge_decides_on_words_of_the_rows_dialect_that_sqlite_does_not_know(dialect, answer, asked):
    model = FakeModel(["[[A=B]]"])
    server = make_server(TextToSqlServer, model=model, judge_model_server=JUDGE)
    told = await graded(server, fenced(answer), sql_dialect=dialect)
    assert (told["reward"], len(model.requests)) == (float(asked), asked)
    assert (told["failure_reason"] or "judged").startswith("judged" if asked else "query_failed: ")


async def test_what_was_thought_is_no_query(server):
    assert (await graded(server, "<think>SELECT 1?</think>SELECT a FROM t"))["reward"] == 1.0
    assert (await graded(server, f"<think>\n{fenced('SELECT a FROM t')}"))["failure_reason"] == "no_sql"


async def test_queries_can_be_tried_where_that_is_offered():
    server = make_server(TextToSqlServer, offers_run_query=True)
    assert [each.name for each in server.tools()] == ["run_query"]
    async with rollout(server, sql="SELECT a FROM t", sql_context=CONTEXT) as attempt:
        found = await attempt.call("run_query", query="SELECT a, b FROM t ORDER BY a")
        assert found.split("\n") == ["a | b", "1 | x", "2 | y", "2 | y", "3 | NULL", "(4 rows in all)"]
        assert "not authorized" in await attempt.call("run_query", query="DELETE FROM t")
        assert "no such table" in await attempt.call("run_query", query="SELECT * FROM u")
        assert (await attempt.verify(reply(*attempt.calls, fenced("SELECT a FROM t")))).reward == 1.0


def test_without_that_there_is_no_tool(server):
    assert server.tools() == []


async def test_two_rollouts_query_their_own_databases():
    server = make_server(TextToSqlServer, offers_run_query=True)
    one = rollout(server, sql_context="CREATE TABLE one (a);")
    two = rollout(server, sql_context="CREATE TABLE two (b);")
    async with one as first, two as second:
        assert "no such table" in await second.call("run_query", query="SELECT * FROM one")
        assert (await first.call("run_query", query="SELECT * FROM one")).startswith("a\n")


async def test_prepared_rows_can_be_answered_and_are_the_same_for_the_same_seed(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=60, seed=7)))
    again = prepare(tmp_path / "again.jsonl", count=60, seed=7)
    other = prepare(tmp_path / "other.jsonl", count=60, seed=8)
    assert again.read_bytes() == (tmp_path / "rows.jsonl").read_bytes() != other.read_bytes()
    assert len({row["uuid"] for row in rows}) == 60
    server = make_server(TextToSqlServer)
    async with rollout(server) as attempt:
        for row in rows:
            assert (await attempt.verify(reply(*solve(row)), **row)).reward == 1.0
            assert (await attempt.verify(reply("SELECT 1 WHERE 0"), **row)).reward == 0.0


def test_prepare_runs_from_the_command_line(tmp_path):
    assert main(["--output", str(tmp_path / "rows.jsonl"), "--count", "3"]) == 0
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 3
