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
        ("5 million", 5_000_000),
        (r"3.5\text{ million dollars}", 3_500_000),
        ("2 hundred thousand", 200_000),
        ("3 dozen", 36),
        ("42 lakh", 4_200_000),
        ("42 crores", 420_000_000),
        ("42 per mille", Fraction(42, 1000)),
        ("42 tenths", Fraction(42, 10)),
        ("1234.5 Millionen", 1_234_500_000),
        ("3 gross", 432),
        ("negative 10", -10),
        (r"\text{minus } 10", -10),
        ("-$5", -5),
        ("$-5", -5),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0.\overline{142857}", Fraction(1, 7)),
        (r"0.\dot{3}", Fraction(1, 3)),
        ("0.(3)", Fraction(1, 3)),
        (r"0.\dot{1}4285\dot{7}", Fraction(1, 7)),
        ("0.3\u0305", Fraction(1, 3)),
        ("0.333...", Fraction(1, 3)),
        ("0.1666…", Fraction(1, 6)),
        (r"1.2727\ldots", Fraction(14, 11)),
        (r"33.\overline{3}\%", Fraction(100, 3)),
    ],
)
def test_number_is_parsed_exactly(text, value):
    assert number_in(text).value == value


@each_case(
    "text",
    [
        "", " ", "five", "x = 5", "12:30", "7 or 8", "7 to 8", "12 - 4", "1/2/3", "1 2", "(1, 2)", "12,34", "1,2",
        "1 2 000", "1 000 20", "1 0000", "1000 000",
        "5x", "5 x", "5xy", "2 pi", "2 sin x", "3.14159...", r"\dfrac{1}{0}", "1/0", "1 1/0", "10^{10^{9}}",
        "1e999999", "1e-999999", r"2 \times 10^{99999}", "9" * 201, "1..2", "--3", "½",
    ],
)  # fmt: skip
def test_text_that_is_not_a_number_is_none(text):
    assert number_in(text) is None


@each_case(
    "text",
    [
        "42 wrong", "42 is wrong", "42 is not it", "42 isn't it", "42 no wait forty-three", "42 plus one",
        "42 minus one", "42 times ten", "42 negative", "42 squared", "42 at most", "42 in base eight",
        "42 forty-three", "42 dollars but fewer", "42 dollars plus tip", "42 except",
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
        ("18", "18 apples"),
        ("18", "18 people"),
        ("18", "18 red apples in each box"),
        ("18", "18 in total"),
        ("18", "18 Euro"),
        ("3 slices", "3 slices of pizza"),
        ("$18", "18 dollars"),
        ("$0.05", "5 cents"),
        ("£5", "5 pounds"),
        ("5 hours", "5 hr"),
        ("1.5 hours", "90 minutes"),
        ("1 year", "12 months"),
        (r"12\mathrm{~km}", r"12000\mathrm{~m}"),
        (r"6\text{ ft}^2", "6 square feet"),
        (r"6\text{ ft}^2", "6 sq ft"),
        ("60 mph", "60 miles per hour"),
        ("9.8 m/s^2", r"9.8\text{ m/s}^2"),
        (r"5\text{ inches}", r"5\text{ in}"),
        (r"30^\circ", "30 degrees"),
        (r"5\text{ p.m.}", "5 PM"),
        ("12 square units", r"12\text{ cm}^2"),
        (r"3\text{ million}", "3,000,000"),
        ("3 million dollars", r"\$3,000,000"),
        (r"\frac13", r"0.\overline{3}"),
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
        ("5 km", "5 miles"),
        ("5 hours", "5 minutes"),
        ("5 hours", "5 trips"),
        ("5 apples", "5 pears"),
        ("60 km/h", "60 mph"),
        ("60 m/s", "60 m/s^2"),
        (r"12\mathrm{~km}", r"12\mathrm{~m}"),
        (r"6\text{ ft}^2", r"6\text{ ft}^3"),
        (r"6\text{ ft}^2", r"6\text{ ft}"),
        ("12 square units", "12 cubic cm"),
        (r"5\text{ inches}", r"5\text{ cm}"),
        (r"5\text{ p.m.}", r"5\text{ a.m.}"),
        (r"30^\circ", r"30\text{ radians}"),
        (r"25^\circ\text{C}", r"25^\circ\text{F}"),
        (r"\$5", r"5\text{ cents}"),
        ("$5", "€5"),
        (r"3\text{ million}", "3"),
        (r"3\text{ million}", r"3\text{ billion}"),
        (r"4\text{ dozen}", "4"),
        ("10", "negative 10"),
        ("1234.5", "1234.5 Millionen"),
        ("1234.5", "1234.5 тыс."),
    ],
)
def test_different_numbers_are_not_equal(expected, answer):
    assert same_number(expected, answer) is False
    assert same_number(answer, expected) is False


@each_case(
    "text",
    [
        "120 (one hundred and twenty)", r"120\text{ (one hundred twenty)}", r"120 (\text{one hundred twenty})",
        "one hundred twenty (120)", "One hundred and twenty (120) apples", "120 [one hundred twenty]",
        "120 apples (one hundred twenty apples)", "120 (a hundred and twenty) apples",
    ],
)  # fmt: skip
def test_value_in_words_after_number_is_accepted(text):
    assert same_number("120", text) is True


@each_case(
    ("text", "value"),
    [
        ("0 (zero)", 0),
        ("-5 (negative five)", -5),
        ("21 (Twenty-one)", 21),
        ("2012 (two thousand and twelve)", 2012),
        ("2 million (two million)", 2_000_000),
        ("36 (three dozen)", 36),
        ("3.05 (three point zero five)", Fraction(61, 20)),
        ("3/4 (three quarters)", Fraction(3, 4)),
        (r"\frac{3}{4} (three-fourths)", Fraction(3, 4)),
        ("1/2 (a half)", Fraction(1, 2)),
        ("3.5 (three and a half)", Fraction(7, 2)),
        ("50% (fifty percent)", 50),
        ("$10 (ten dollars)", 10),
    ],
)
def test_words_spell_every_kind_of_number(text, value):
    assert number_in(text).value == value


@each_case(
    "text",
    [
        "10 (eleven)", "2 (twenty)", "10 (ten thousand)", "10 (not ten)", "10 (or ten)", "10 (minus ten)",
        "10 (ten or eleven)", "10 (ten less)", "10 (half of ten)", "10 (ten percent)", "10 (ten times)",
        "100 (one)", "1 (hundred)", "5 (negative five)", "5 (five) or 6", "5 (fifty-five)", "7 (seven plus one)",
        "7 (maybe seven)", "101 (base two)", "3 (three quarters)", "15 (ten five)", "30 (twenty ten)", "1 (a)",
        "eleven (10)", "not ten (10)", "ten thousand (10)", "10 dollars (ten cents)", "110 (one hundred (ten))",
    ],
)  # fmt: skip
def test_other_words_in_brackets_are_rejected(text):
    assert number_in(text) is None


def test_scale_after_the_words_counts():
    assert number_in("10 (ten) thousand").value == 10_000


@each_case(("expected", "answer"), [("18", "x"), ("x", "18"), ("18", "18 maybe"), ("18", "18 less")])
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
