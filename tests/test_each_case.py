"""A table of cases runs as one test, and its failure lists every wrong case."""

from __future__ import annotations

import inspect

import pytest

from tests.each_case import each_case


def test_failure_lists_every_wrong_case():
    @each_case(("number", "square"), [(1, 1), (2, 5), (3, 10)])
    def squares(number, square):
        assert number**2 == square

    with pytest.raises(pytest.fail.Exception) as failed:
        squares()
    first, *_ = lines = str(failed.value).splitlines()
    assert first == "2 of 3 cases failed:"
    assert [line.partition(": ")[2] for line in lines if line.startswith("line ")] == [
        "number=2, square=5",
        "number=3, square=10",
    ]


async def test_tables_of_async_tests_may_be_combined():
    seen = []

    @each_case("first", "ab")
    @each_case("second", [1, 2])
    async def pairs(first, second):
        seen.append((first, second))

    await pairs()
    assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_only_fixtures_remain_as_parameters():
    @each_case("number", [1])
    def uses(tmp_path, number):
        pass

    assert list(inspect.signature(uses).parameters) == ["tmp_path"]
