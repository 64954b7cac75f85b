"""Extracting queries, formatting results, and failing workers."""

import sys
import time

import pytest

from nemo_gym import EnvironmentFailed
from resources_servers.text_to_sql.sql import QueryResult, SqlRunner, as_table, is_ordered, last_sql


def test_only_outer_order_by_counts():
    cases = [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT RANK() OVER (ORDER BY a) FROM t", False),
        ("WITH x AS (SELECT 1 ORDER BY 1) SELECT * FROM x ORDER BY 1", True),
        ("SELECT 'it''s order by' FROM t", False),
        ('SELECT "order by (" FROM t ORDER BY 1', True),
        ("SELECT 1 -- order by 1", False),
        ("SELECT 1 /* order by 1", False),
        ("SELECT border, by_whom FROM t", False),
        ("SELECT [order by (] FROM t ORDER BY 1", True),
        ("SELECT [a FROM t ORDER BY 1", False),
    ]
    wrong = [(sql, ordered, found) for sql, ordered in cases if (found := is_ordered(sql)) is not ordered]
    assert wrong == []


def test_order_by_search_takes_linear_time():
    cases = ["[", "'", '"', "`", "' \"", "/*", "--", "- ", "(", "order ", "order by(", " "]
    wrong = []
    for piece in cases:
        sql = "SELECT 1 " + piece * (200_000 // len(piece)) + "'[`\""
        started_at = time.process_time()
        is_ordered(sql)
        if (found := time.process_time() - started_at) >= 1:
            wrong.append((piece, found))
    assert wrong == []


def test_query_is_a_block_or_the_whole_text():
    cases = [
        ("```sql\nSELECT 1;\n```", "SELECT 1;"),
        (" select 1", "select 1"),
        ("-- one\n/* two */ VALUES (3)", "-- one\n/* two */ VALUES (3)"),
        ("I would select 1", None),
        ("", None),
    ]
    wrong = [(text, sql, found) for text, sql in cases if (found := last_sql(text)) != sql]
    assert wrong == []


def test_long_tables_are_truncated():
    result = QueryResult(["a", "b"], [(None, b"\x01"), ("x" * 9, "two\nlines"), (1.5, 2)], frozenset())
    assert as_table(result, rows=2, width=5) == "a | b\nNULL | 01\nxxxxx… | two l…\n(1 more rows)\n(3 rows in all)"


async def test_failing_worker_start_is_an_environment_failure(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFailed, match="no worker could run the query"):
        await SqlRunner(1).query("", "SELECT 1")
