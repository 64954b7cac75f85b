"""Numbers and articles in messages."""

from __future__ import annotations

from nemo_gym.config.wording import counted, with_article
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
