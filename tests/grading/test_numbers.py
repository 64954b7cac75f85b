"""Parsing and comparing numbers in plain text and LaTeX."""

from fractions import Fraction

from nemo_gym.grading import has_asked_unit, number_in, same_number
from tests.each_case import each_case


@each_case(
    ("text", "value"),
    [
        ("18", 18),
        ("00012", 12),
        ("+5", 5),
        ("-4", -4),
        ("−4", -4),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("3.0", 3),
        ("1,234.50", Fraction(2469, 2)),
        ("1{,}234", 1234),
        (r"12\,345", 12345),
        ("1,000,000", 1_000_000),
        ("-3/4", Fraction(-3, 4)),
        ("1 1/2", Fraction(3, 2)),
        ("-1 1/2", Fraction(-3, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\frac34", Fraction(-3, 4)),
        (r"2\dfrac{1}{2}", Fraction(5, 2)),
        (r"1.5 \times 10^{3}", 1500),
        ("6e-4", Fraction(3, 5000)),
        (r"\$18", 18),
        ("$18", 18),
        (r"\(7\)", 7),
        ("1 250.5", Fraction(2501, 2)),
        ("12\u202f345\u202f678 people", 12345678),
        ("10\u2009000 dollars", 10000),
        ("2 100/300", Fraction(7, 3)),
        ("18 dollars", 18),
        (r"5\text{ km/h}", 5),
        (r"90^\circ", 90),
        (r"5\text{ cm}^2", 5),
        ("12 square meters.", 12),
        (r"25\%", 25),
        ("25 percent", 25),
        ("25 per cent", 25),
        ("60 miles per hour", 60),
        ("9 feet squared", 9),
        ("7 times", 7),
        ("3 years from now", 3),
        ("33 dollars for two tickets", 33),
        ("4 one-way tickets", 4),
    ],
)
def test_number_is_parsed_exactly(text, value):
    assert number_in(text).value == value


@each_case(
    "text",
    [
        "", " ", "five", "x = 5", "12:30", "7 or 8", "7 to 8", "12 - 4", "1/2/3", "1 2", "(1, 2)", "12,34", "1,2",
        "1 2 000", "1 000 20", "1 0000", "1000 000",
        "5x", "5 x", "5xy", "2 pi", "2 sin x", "5 million", "3 dozen", r"\dfrac{1}{0}", "1/0", "1 1/0", "10^{10^{9}}",
        "1e999999", "1e-999999", r"2 \times 10^{99999}", "9" * 201, "1..2", "--3", "½",
    ],
)  # fmt: skip
def test_text_that_is_not_a_number_is_none(text):
    assert number_in(text) is None


@each_case(
    "text",
    [
        "42 wrong", "42 is wrong", "42 is not it", "42 isn't it", "42 no wait forty-three", "42 plus one",
        "42 minus one", "42 times ten", "42 negative", "42 lakh", "42 crores", "42 per mille", "42 squared",
        "42 forty-three", "42 dollars but fewer", "42 tenths", "42 dollars plus tip", "42 except",
        "6 oder sieben", "6 ou sept", "6 euros oppure 7",
    ],
)  # fmt: skip
def test_denial_operator_or_scale_is_not_unit(text):
    assert number_in(text) is None


@each_case(
    ("expected", "answer"),
    [
        ("18", "18.0"),
        ("2125", "2,125"),
        ("0.75", r"\frac{3}{4}"),
        ("1.5", "1 1/2"),
        ("18", "$18 dollars"),
        ("18 dollars", "18 dollar"),
        ("25", r"25\%"),
        ("25%", "0.25"),
        ("1/4", "25 percent"),
        ("25%", "25.0 %"),
        ("1/3", "0.333333"),
        ("0.333333", "1/3"),
        ("2/3", "0.6666667"),
        ("0.3333333333", "0.333333"),
        ("0.00123456", "0.001235"),
    ],
)
def test_spellings_of_one_number_are_equal(expected, answer):
    assert same_number(expected, answer) is True
    assert same_number(answer, expected) is True


@each_case(
    ("expected", "answer"),
    [
        ("18", "19"),
        ("18", "-18"),
        ("1/3", "0.33"),
        ("1/3", "0.333334"),
        ("50%", "5000%"),
        ("0.5", "50"),
        ("50%", "50.1"),
        ("0.000000001", "0.000000002"),
        ("0.0000004", "0.000000"),
        ("0.0000012345", "0.000001"),
        ("1234567", "1234568"),
    ],
)
def test_different_numbers_are_not_equal(expected, answer):
    assert same_number(expected, answer) is False
    assert same_number(answer, expected) is False


@each_case(("expected", "answer"), [("18", "x"), ("x", "18"), ("5 km", "5 miles"), ("5 hours", "5 h")])
def test_comparing_other_texts_returns_none(expected, answer):
    assert same_number(expected, answer) is None


@each_case(
    ("answer", "is_asked"),
    [
        ("6", True),
        ("6 crates", True),
        ("6 crate", True),
        ("6 boxes", True),
        ("6 crates in Lima", True),
        ("6 twice", False),
        ("6 aut septem", False),
        ("6 withdrawn", False),
        ("6%", False),
        ("6 kilos", False),
    ],
)
def test_unit_is_of_question_or_expected_answer(answer, is_asked):
    question = "All are withdrawn. How many crates of wine are in Lima? Half is twice as much."
    assert has_asked_unit(number_in(answer), number_in("6 boxes"), question) == is_asked
    assert has_asked_unit(number_in("6%"), number_in("6"), "How many percent are there?")
