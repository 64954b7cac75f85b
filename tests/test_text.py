"""Numbers and articles in messages."""

from __future__ import annotations

from nemo_gym.text import counted, decimal, with_article
from tests.each_case import each_case


@each_case(
    ("number", "text"),
    [(0, "0 rows"), (1, "1 row"), (2, "2 rows")],
)
def test_noun_agrees_with_its_number(number, text):
    assert counted(number, "row") == text


@each_case(
    ("noun", "text"), [("object", "an object"), ("int", "an int"), ("list", "a list"), ("NoneType", "a NoneType")]
)
def test_article_fits_its_noun(noun, text):
    assert with_article(noun) == text


@each_case(
    ("value", "text"),
    [
        (0.75, "0.750"),
        (-1234.5, "-1,234.500"),
        (1e308, "1e+308"),
        (-1.23456e30, "-1.235e+30"),
        (1e14, "100,000,000,000,000.000"),
    ],
)
def test_number_never_has_hundreds_of_digits(value, text):
    assert decimal(value) == text
