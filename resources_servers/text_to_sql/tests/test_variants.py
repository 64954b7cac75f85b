"""Databases with other rows: their keys, references and regularities, and the queries that agree on them."""

import sqlite3
from contextlib import closing
from random import Random

import pytest

from resources_servers.text_to_sql import sql
from resources_servers.text_to_sql.sql import SqlLimits, SqlRunner
from resources_servers.text_to_sql.variants import vary

CONTEXT = """
CREATE TABLE team (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT, country TEXT);
CREATE TABLE player (id INTEGER PRIMARY KEY, team_id INTEGER, name TEXT, age INTEGER, joined TEXT, boss INTEGER
    REFERENCES player (id));
CREATE TABLE goal (match INTEGER, minute INTEGER CHECK (minute > 0), player_id INTEGER NOT NULL REFERENCES player,
    kind TEXT, PRIMARY KEY (match, minute));
INSERT INTO team VALUES (1, 'Reds', 'Turin', 'Italy'), (2, 'Blues', 'Lyon', 'France'), (3, 'Greens', 'Turin', 'Italy'),
    (4, 'Whites', 'Lyon', 'France');
INSERT INTO player VALUES (1, 1, 'Ann', 30, '2020-01-02', NULL), (2, 1, 'Bob', 22, '2021-03-04', 1),
    (3, 2, 'Cid', 25, '2019-05-06', 1), (4, 3, 'Dot', 22, '2020-07-08', 3), (5, 3, 'Eve', 41, '2022-09-10', NULL);
INSERT INTO goal VALUES (1, 5, 1, 'head'), (1, 17, 2, 'foot'), (2, 5, 2, 'foot'), (2, 80, 4, 'head'),
    (3, 9, 5, 'foot');
CREATE VIEW scorer AS SELECT DISTINCT player.name FROM goal JOIN player ON player.id = goal.player_id;
CREATE TRIGGER keep BEFORE DELETE ON goal BEGIN SELECT RAISE(ABORT, 'kept'); END;
"""
RULES = {
    "references are valid": "SELECT COUNT(*) FROM pragma_foreign_key_check",
    "undeclared references are valid": "SELECT COUNT(*) FROM player WHERE team_id NOT IN (SELECT id FROM team)",
    "a column without NULL has none": "SELECT COUNT(*) FROM player WHERE age IS NULL OR team_id IS NULL",
    "unique columns stay unique": "SELECT COUNT(name) - COUNT(DISTINCT name) FROM player",
    "a city keeps its country": "SELECT COUNT(*) FROM team WHERE (city = 'Turin') <> (country = 'Italy')",
    "chains of references end": "SELECT COUNT(*) FROM player WHERE boss > id",
    "checks hold": "SELECT COUNT(*) FROM goal WHERE minute <= 0",
}


def opened():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(CONTEXT)
    return connection


@pytest.mark.parametrize("number", range(10))
def test_new_rows_keep_keys_and_regularities(number):
    with closing(opened()) as connection, closing(opened()) as old, closing(opened()) as again:
        vary(connection, "SELECT name FROM player WHERE age > 29", Random(number))
        vary(again, "SELECT name FROM player WHERE age > 29", Random(number))
        assert {rule: connection.execute(sql).fetchone()[0] for rule, sql in RULES.items()} == dict.fromkeys(RULES, 0)
        for table in ("team", "player", "goal"):
            rows, before, same = (
                each.execute(f"SELECT * FROM {table}").fetchall() for each in (connection, old, again)
            )
            assert rows == same != before
            assert rows


@pytest.fixture(scope="module")
def runner():
    runner = SqlRunner(1)
    yield runner
    runner.close()


@pytest.mark.parametrize(
    ("reference", "answer", "agrees"),
    [
        ("SELECT name FROM player WHERE age > 29", "SELECT name FROM player WHERE age >= 30", True),
        ("SELECT name FROM player WHERE age > 29", "SELECT name FROM player WHERE age >= 29", False),
        ("SELECT name FROM player WHERE age > 29", "VALUES ('Ann'), ('Eve')", False),
        ("SELECT name FROM scorer", "SELECT name FROM player WHERE id IN (SELECT player_id FROM goal)", True),
        ("SELECT name FROM scorer", "SELECT name FROM player WHERE name <> 'Cid'", False),
        (
            "SELECT team.name, COUNT(*) FROM team JOIN player ON team_id = team.id GROUP BY team.id",
            "SELECT name, (SELECT COUNT(*) FROM player WHERE team_id = t.id) AS n FROM team AS t WHERE n > 0",
            True,
        ),
        ("SELECT name FROM player ORDER BY age", "SELECT name FROM player ORDER BY age, id DESC", True),
        ("SELECT name FROM player ORDER BY age", "SELECT name FROM player", False),
        (
            "SELECT city FROM team GROUP BY city ORDER BY COUNT(*) DESC LIMIT 1",
            "SELECT city FROM team GROUP BY city HAVING COUNT(*) = (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM "
            "team GROUP BY city))",
            True,
        ),
        (
            "SELECT name FROM team WHERE city = (SELECT city FROM team GROUP BY city ORDER BY COUNT(*) LIMIT 1)",
            "SELECT name FROM team WHERE city = (SELECT city FROM team GROUP BY city ORDER BY COUNT(*), city DESC "
            "LIMIT 1)",
            True,
        ),
        ("SELECT name FROM player ORDER BY age, id", "SELECT name FROM player ORDER BY age, name", False),
        ("SELECT name FROM player ORDER BY id", "SELECT name FROM player", False),
        ("SELECT name FROM player LIMIT 1", "SELECT 'Ann'", True),
        ("SELECT COUNT(*) FROM player WHERE team_id IS NULL", "SELECT 0", False),
    ],
)
async def test_query_must_agree_on_other_rows(runner, reference, answer, agrees):
    assert await runner.agrees_elsewhere(CONTEXT, answer, reference) is agrees


async def test_collations_are_kept(runner):
    context = (
        "CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE);"
        "INSERT INTO city VALUES (1, 'bonn'), (2, 'Bonn'), (3, 'Aachen'), (4, 'celle'), (5, 'Dresden');"
    )
    reference = "SELECT name FROM city ORDER BY name DESC"
    for answer, agrees in (
        (reference, True),
        ("SELECT name FROM city ORDER BY lower(name) DESC", True),
        ("SELECT name FROM city ORDER BY name COLLATE BINARY DESC", False),
    ):
        assert await runner.agrees_elsewhere(context, answer, reference) is agrees, answer


async def test_tables_without_rows_are_filled(runner):
    context = "CREATE TABLE sale (id INTEGER PRIMARY KEY, day DATE, price REAL, shop TEXT);"
    reference = "SELECT shop, SUM(price) FROM sale WHERE shop = 'Oak' GROUP BY shop"
    for answer, agrees in (
        (reference, True),
        ("SELECT shop, MAX(price) FROM sale WHERE shop = 'Oak' GROUP BY 1", False),
    ):
        assert await runner.agrees_elsewhere(context, answer, reference) is agrees


async def test_slow_making_does_not_count_as_query_time(monkeypatch):
    monkeypatch.setattr(sql, "VARIANTS", 1)
    columns = [f"c{number}" for number in range(20)]
    rows = ", ".join(str((number, *(number * place % 7 for place in range(20)))) for number in range(500))
    context = f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(columns)}); INSERT INTO wide VALUES {rows};"
    runner = SqlRunner(1, SqlLimits(deadline_s=0.01))
    try:
        reference = "SELECT COUNT(*) FROM wide WHERE c1 > 3"
        assert await runner.agrees_elsewhere(context, reference, reference)
    finally:
        runner.close()


def test_table_with_a_single_null_key_is_varied():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript("CREATE TABLE t (id TEXT PRIMARY KEY, n INT); INSERT INTO t VALUES (NULL, 3);")
        vary(connection, "SELECT n FROM t", Random(1))
        assert connection.execute("SELECT COUNT(*) FROM t").fetchone() == (0,)
