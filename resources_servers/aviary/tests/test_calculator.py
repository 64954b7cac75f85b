"""The calculator is exact and always ends."""

import contextlib

import pytest

from resources_servers.aviary.calculator import LONGEST, NotCalculable, calculate


def test_expression_has_its_value():
    cases = [
        ("16 - 3 - 4", "9"),
        ("(1 + 2) * -3", "-9"),
        ("0.1 + 0.2", "0.3"),
        ("1/3*3", "1"),
        ("1/4", "0.25"),
        ("2/3", "0.666666666667"),
        ("$1,250.50 * 2", "2501"),
        ("80,000×1.5", "120000"),
        ("200 * 15%", "30"),
        ("7 ÷ 2", "3.5"),
        ("7 // 2", "3"),
        ("2^10", "1024"),
        ("2 ** -2", "0.25"),
        (".5*10", "5"),
        ("1_000 + 1", "1001"),
        ("10**200", str(10**200)),
    ]
    wrong = [(expression, value, found) for expression, value in cases if (found := calculate(expression)) != value]
    assert wrong == []


def test_invalid_expression_is_rejected_with_the_reason():
    cases = [
        ("", "cannot read"),
        ("2 +", "cannot read"),
        ("2 apples", "cannot read"),
        ("\x00", "cannot read"),
        ("1 / 0", "division by zero"),
        ("5 // (2 - 2)", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("4 ** 0.5", "whole number"),
        ("x + 1", "only numbers"),
        ("__import__('os').getcwd()", "only numbers"),
        ("'a' * 9", "only numbers"),
        ("True + 1", "only numbers"),
        ("1 if 2 else 3", "only numbers"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 10 ** 9", "too large"),
        ("10 ** -400", "too large"),
        ("1" * LONGEST + "0", "longer than"),
        ("(" * 100 + "1" + ")" * 99, "cannot read"),
    ]
    wrong = []
    for expression, problem in cases:
        try:
            wrong.append((expression, problem, calculate(expression)))
        except NotCalculable as error:
            if problem not in str(error):
                wrong.append((expression, problem, str(error)))
    assert wrong == []


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** 9 ** 9",
        "9" * LONGEST,
        "1e999",
        "1e-999",
        "*".join(["9" * 30] * 6),
        "-" * (LONGEST - 1) + "1",
        "(" * (LONGEST // 2) + "1",
        "2**9" * 40,
        "**".join("2" * 60),
    ],
)
def test_every_expression_ends(expression):
    with contextlib.suppress(NotCalculable):
        calculate(expression)
