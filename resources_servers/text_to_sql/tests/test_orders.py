"""`ORDER BY` clauses, and the order of tied rows."""

import re

from resources_servers.text_to_sql.orders import break_ties, is_ordered
from tests.pace import assert_linear


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
    for piece in ["[", "'", '"', "`", "' \"", "/*", "--", "- ", "(", "order ", "order by(", "order by;", " "]:
        assert_linear(lambda sql: break_ties(sql, 1), piece, 200_000, start="SELECT 1 ", end="'[`\"")


def test_ties_are_broken_by_columns_of_the_result():
    cases = [
        ("SELECT a FROM t ORDER BY b", "SELECT a FROM t ORDER BY b, 1 , 2 "),
        ('SELECT a FROM t ORDER BY "b c" -- last\n;', 'SELECT a FROM t ORDER BY "b c" -- last\n, 1 , 2 ;'),
        ("SELECT a FROM t ORDER BY b -- c", "SELECT a FROM t ORDER BY b, 1 , 2  -- c"),
        ("SELECT a FROM t ORDER BY b -- c\nLIMIT 2", "SELECT a FROM t ORDER BY b -- c\n, 1 , 2 LIMIT 2"),
        ("SELECT (SELECT a FROM t ORDER BY b LIMIT 1)", "SELECT (SELECT a FROM t ORDER BY b , 1 LIMIT 1)"),
        (
            "WITH x AS (SELECT a FROM t ORDER BY f(b)) SELECT 1",
            "WITH x AS (SELECT a FROM t ORDER BY f(b), 1 ) SELECT 1",
        ),
        ("SELECT RANK() OVER (ORDER BY b) FROM t", "SELECT RANK() OVER (ORDER BY b) FROM t"),
        (
            "SELECT SUM(a) OVER w FROM t WINDOW w AS (ORDER BY b) ORDER BY a",
            "SELECT SUM(a) OVER w FROM t WINDOW w AS (ORDER BY b) ORDER BY a, 1 , 2 ",
        ),
        ("SELECT ')' FROM t LIMIT 1", "SELECT ')' FROM t LIMIT 1"),
    ]
    cases = [(sql, re.sub(r", (\d) ", r", \1 COLLATE BINARY ", broken)) for sql, broken in cases]
    wrong = [(sql, broken, found) for sql, broken in cases if (found := break_ties(sql, 2)[0]) != broken]
    assert wrong == []
    assert break_ties("SELECT a FROM t ORDER BY b", 1)[1] == "SELECT a FROM t ORDER BY b, 1 COLLATE BINARY DESC "
