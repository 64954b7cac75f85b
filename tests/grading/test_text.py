"""Finding answers in texts, and normalising texts for comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.grading import last_boxed, last_boxes, normalised, option_letter, strip_reasoning, unwrapped
from tests.each_case import each_case
from tests.pace import assert_linear


@each_case(
    ("text", "held"),
    [
        (r"\boxed{B}", "B"),
        (r"first \boxed{A}, then \boxed{B}.", "B"),
        (r"\boxed {B}", "B"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{B: {nested}}} and }", r"\text{B: {nested}}"),
        (r"\boxed{}", ""),
        (r"\boxed{\left\{ 1, 2 \right.}", r"\left\{ 1, 2 \right."),
        (r"\boxed{line\\}", r"line\\"),
        (r"\boxed{x = \boxed{3}}", "3"),
        (r"} { \boxed{B}", "B"),
        (r"\boxed{A} and then \boxed{cut off", "A"),
        (r"\boxed{cut off, but \boxed{A}", "A"),
        ("\\boxed{two\nlines}", "two\nlines"),
    ],
)
def test_last_complete_box_is_returned(text, held):
    assert last_boxed(text) == held


@each_case(
    ("text", "held"),
    [
        (r"\boxed{A} or \boxed{B}", ["A", "B"]),
        (r"\boxed{0}. It is \boxed{A}, or perhaps $\boxed{B}$", ["A", "B"]),
        (r"\(\boxed{A}\)\text{ or }\[\boxed{B}\]", ["A", "B"]),
        (r"$x_1 = \boxed{A} \lor x_2 = \boxed{B}$", ["A", "B"]),
        ("\\boxed{A}\n\n\\boxed{B}", ["A", "B"]),
        (r"\boxed{A}, \boxed{A}", ["A"]),
        (r"\boxed{A}. No, \boxed{B}", ["B"]),
        (r"\boxed{A \boxed{B}}", ["B"]),
        (r"\boxed{A or " * 2, []),
        ("none", []),
    ],
)
def test_boxes_of_the_last_list_are_returned(text, held):
    assert last_boxes(text) == held


@each_case("text", ["", "B", r"\boxed", r"\boxed B", r"\boxed{B", r"\fbox{B}", "{B}"])
def test_text_without_complete_box_has_none(text):
    assert last_boxed(text) is None


@pytest.mark.parametrize("piece", [r"\boxed{", "{", "}", r"\boxed", "\\boxed ", "\\"])
def test_box_in_huge_text_is_found_quickly(piece):
    assert last_boxed(piece * 300_000 + r" \boxed{B}") == "B"
    assert last_boxes(piece * 300_000 + r" \boxed{B}") == ["B"]


@given(st.text(alphabet=r"ab{}\ "))
def test_boxed_content_has_balanced_braces(text):
    held = last_boxed(rf"\boxed{{{text}")
    if held is not None:
        bare = held.replace("\\\\", "").replace(r"\{", "").replace(r"\}", "")
        assert bare.count("{") == bare.count("}")


@each_case(
    ("text", "left"),
    [
        ("no thinking", "no thinking"),
        ("<think>A?</think> B", "B"),
        ("one <think>x</think>two <think>y</think>three", "one two three"),
        ("B <think>never ends: C", "B"),
        ("<think>never ends: C", ""),
        ("opened in the prompt</think>B", "B"),
        ("<THINK>A?</Think>B", "B"),
        ("<thinking>A?</thinking>B", "B"),
        ("[THINK]A?[/THINK]B", "B"),
        ("[THINK]never ends: C", ""),
        ("<think>```\nA</think>B", "B"),
        ("```\nA</think>B", "B"),
        ("```\nsplit('<think>')\n```", "```\nsplit('<think>')\n```"),
        ("```\n'<think>(.*)</think>'\n```\n<think>A?", "```\n'<think>(.*)</think>'\n```"),
        ("<think>outer <think>inner</think> outer</think>B", "B"),
        ("<think>first</think>A</think>B", "B"),
        ("A <think>x</think> y</think>B", "B"),
        ("", ""),
    ],
)
def test_reasoning_is_removed(text, left):
    assert strip_reasoning(text) == left


@each_case(
    ("labels", "letters"),
    [
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("abz", "ABZ"),
        ("ＡＢＺ", "ABZ"),
        ("ａｂｚ", "ABZ"),
        ("أبجدهوزحطي", "ABCDEFGHIJ"),
        ("اإ", "AA"),
        ("কখগঘঙচছজঝঞ", "ABCDEFGHIJ"),
        ("অবডঢ", "ABCD"),
    ],
)
def test_letters_of_each_script_map_to_options(labels, letters):
    assert [option_letter(label) for label in labels] == list(letters)


@each_case(("label", "letter"), [(" B ", "B"), ("هـ", "E"), ("\u0627\u0654", "A"), ("　Ｃ　", "C")])
def test_label_may_be_padded_stretched_or_decomposed(label, letter):
    assert option_letter(label) == letter


@each_case("label", ["", " ", "AB", "1", "B.", "(B)", "Б", "β", "é", "一", "?", "ক্ষ"])
def test_other_labels_are_not_letters(label):
    assert option_letter(label) is None


@each_case(
    ("text", "plain"),
    [
        (r"\text{B}", "B"),
        (r"\mathrm{\textbf{B}}", "B"),
        (r"$\text{B}$ ", "B"),
        (r"\(B\)", "B"),
        ("**B**", "B"),
        ("Ｂ）", "B)"),
        (r"14\text{ km}", "14 km"),
        ("~~B~~", ""),
        ("~~B~~ C", "C"),
        ("**~~B~~**", ""),
        ("<del>B</del> C", "C"),
        ("~B~", "~B~"),
        (r"5~~\text{km}~~", "5~~km~~"),
        ("a ~~ b ~~ c", "a ~~ b ~~ c"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\text{cut off", r"\text{cut off"),
        ("", ""),
    ],
)
def test_markup_is_removed(text, plain):
    assert unwrapped(text) == plain


@each_case(
    ("one", "other"),
    [
        ("Paris", " paris. "),
        ("New   York", "new\nyork"),
        (r"\text{New York}", "New York"),
        (r"$12\,\text{cm}$", "12 cm"),
        (r"\$61", "$61"),
        (r"50\%", "50%"),
        ("Straße", "STRASSE"),
        ("café", "cafe\u0301"),
        ("１２", "12"),
    ],
)
def test_spellings_of_one_answer_are_equal(one, other):
    assert normalised(one) == normalised(other)


@each_case(("one", "other"), [("12", "1 2"), ("-1", "1"), ("0.5", "5"), ("x²", "x2"), ("not a", "a")])
def test_different_answers_stay_different(one, other):
    assert normalised(one) != normalised(other)


@each_case("read", [normalised, unwrapped, option_letter])
def test_combining_marks_take_linear_time(read):
    assert_linear(read, "\u0301\u0323", 100_000, start="e")


def test_long_text_is_composed_like_short_text():
    assert unwrapped("cafe\u0301 " * 999) == ("café " * 999).rstrip()
