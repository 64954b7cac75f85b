"""Extracting queries, formatting results, and failing workers."""

import sys

import pytest

from nemo_gym import EnvironmentFailed
from resources_servers.text_to_sql.sql import QueryResult, SqlRunner, as_table, last_sql


def test_query_is_a_block_or_the_whole_text():
    cases = [
        ("```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("```sql\nSELECT 1\n```\nRun it:\n```bash\nsqlite3 a.db\n```", "SELECT 1"),
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
