"""The option that a text chooses in each grading mode."""

import re

import pytest

from resources_servers.mcqa.grading import GRADING_MODES, Options, choice_in, letter_of_label

CITIES = Options.of_row([{"A": "Canberra"}, {"B": "New York"}, {"C": "York"}, {"D": None}])
NUMBERS = Options.of_row([{"A": "5"}, {"B": "15"}, {"C": "-5"}, {"D": r"$12\text{ cm}$"}, {"E": "5"}])
NONE_LISTED = Options.of_row([])


def search(pattern: str, text: str) -> str | None:
    """Search in this process, because a test's patterns are harmless."""
    found = [match[match.re.groups and 1] for match in re.finditer(pattern, text, re.IGNORECASE)]
    return found[-1] if found else None


ONE_LETTER_IN_A_BOX = [
    (r"So it is \boxed{B}.", "B"),
    (r"\boxed{b}", "B"),
    (r"\boxed{ B }", "B"),
    (r"First \boxed{A}. No, \boxed{B}.", "B"),
    (r"\boxed{\text{B}}", "B"),
    (r"\boxed{\textbf{\text{ B }}}", "B"),
    (r"$$\boxed{\mathrm{B}}$$", "B"),
    (r"\boxed{**B**}", "B"),
    (r"\boxed{$B$}", "B"),
    (r"\boxed{B: New York}", "B"),
    (r"\boxed{B) New York}", "B"),
    (r"\boxed{B. New York}", "B"),
    (r"\boxed{B.}", "B"),
    (r"\boxed{b) New York}", "B"),
    (r"\boxed{b.}", "B"),
    (r"\boxed{B - New York}", "B"),
    (r"\boxed{B – New York}", "B"),
    (r"\boxed{\text{B: } New {York}}", "B"),
    (r"\boxed{D}", "D"),
    (r"\boxed{ب}", "B"),
    (r"\boxed{ب: القاهرة}", "B"),
    (r"\boxed{খ}", "B"),
    (r"\boxed{ব}", "B"),
    (r"\boxed{Ｂ}", "B"),
    (r"\boxed{Ｂ：New York}", "B"),
    (r"\boxed{A} and then a box cut off: \boxed{B", "A"),
]
NO_LETTER_IN_A_BOX = [
    ("", None),
    ("B", None),
    ("The answer is B.", None),
    ("Answer: B", None),
    (r"\boxed{}", None),
    (r"\boxed{B", None),
    (r"\fbox{B}", None),
    (r"\boxed{E}", None),
    (r"\boxed{A or B}", None),
    (r"\boxed{A, B}", None),
    (r"\boxed{AB}", None),
    (r"\boxed{a - 1}", None),
    (r"\boxed{(B)}", None),
    (r"\boxed{42}", None),
    (r"\boxed{A} so \boxed{none of them}", None),
]


def test_boxed_letter_is_chosen():
    text_cases = ONE_LETTER_IN_A_BOX + NO_LETTER_IN_A_BOX
    modes = ["strict_single_letter_boxed", "lenient_boxed"]
    wrong = [
        (text, choice, mode, found)
        for text, choice in text_cases
        for mode in modes
        if (found := choice_in(text, CITIES, mode)) != choice
    ]
    assert wrong == []


@pytest.mark.parametrize("text", [r"\boxed{New York}", r"\boxed{Canberra}"])
def test_strict_mode_ignores_option_texts(text):
    assert choice_in(text, CITIES, "strict_single_letter_boxed") is None


def test_lenient_box_may_contain_one_options_text():
    cases = [
        (r"\boxed{Canberra}", CITIES, "A"),
        (r"\boxed{\text{canberra.}}", CITIES, "A"),
        (r"\boxed{The city of Canberra}", CITIES, "A"),
        (r"\boxed{New York}", CITIES, "B"),
        (r"\boxed{York}", CITIES, "C"),
        (r"\boxed{in New York}", CITIES, None),  # York is also mentioned
        (r"\boxed{Canberra or York}", CITIES, None),
        (r"\boxed{Yorkshire}", CITIES, None),
        (r"\boxed{None}", CITIES, None),
        (r"\boxed{null}", CITIES, None),
        (r"\boxed{12 cm}", NUMBERS, "D"),
        (r"\boxed{x = 12\text{ cm}}", NUMBERS, "D"),
        (r"\boxed{15}", NUMBERS, "B"),
        (r"\boxed{x = 15}", NUMBERS, "B"),
        (r"\boxed{x = -5}", NUMBERS, "C"),
        (r"\boxed{5}", NUMBERS, None),  # two options have this text
        (r"\boxed{15.2}", NUMBERS, None),
        (r"\boxed{15,000}", NUMBERS, None),
        (r"\boxed{2.15}", NUMBERS, None),
        (r"\boxed{1,15}", NUMBERS, None),
    ]
    wrong = [
        (text, options, choice, found)
        for text, options, choice in cases
        if (found := choice_in(text, options, "lenient_boxed")) != choice
    ]
    assert wrong == []


AFTER_ANSWER = [
    ("Answer: B", "B"),
    ("answer : b", "B"),
    ("ANSWER:B", "B"),
    ("Answer：B", "B"),
    ("I think.\n\nFinal Answer: B\n", "B"),
    ("Answer:\n\nB", "B"),
    ("Answer: A\nWait.\nAnswer: B", "B"),
    ("Answer: B.", "B"),
    ("Answer: B) New York", "B"),
    ("Answer: B - New York", "B"),
    (r"Answer: \boxed{B}", "B"),
    ("Answer: $B$", "B"),
    ("Answer: **B**", "B"),
    ("Answer: Canberra", "A"),
    ("Answer: canberra.", "A"),
    ("Answer: New York", "B"),
    ("Answer: York\nbecause it is old", "C"),
    ("Answer: ب", "B"),
    ("Answer: খ", "B"),
    ("Answer: Ｂ", "B"),
    ("Answer: D", "D"),
]
NOT_AFTER_ANSWER = [
    ("", None),
    ("B", None),
    (r"\boxed{B}", None),
    ("Answer B", None),
    ("Answer:", None),
    ("Answer: ", None),
    ("Answer: E", None),
    ("Answer: A or B", None),
    ("Answer: A, B", None),
    ("Answer: A/B", None),
    ("Answer: Both", None),
    ("Answer: the town of Canberra", None),
    ("Answer: A\nAnswer: unclear", None),
    ("Answer: কলকাতা", None),
    ("Answer: ক্ষমা", None),
    ("Answer: I think B", None),
]


def test_choice_follows_the_last_answer_label():
    text_cases = AFTER_ANSWER + NOT_AFTER_ANSWER
    modes = ["lenient_answer_colon", "lenient_answer_colon_md"]
    wrong = [
        (text, choice, mode, found)
        for text, choice in text_cases
        for mode in modes
        if (found := choice_in(text, CITIES, mode)) != choice
    ]
    assert wrong == []


@pytest.mark.parametrize("text", ["**Answer**: (B)", "**Answer**: B", "Answer: (B)", "Answer: B because it is large"])
def test_only_markdown_mode_reads_marks_and_brackets(text):
    assert choice_in(text, CITIES, "lenient_answer_colon_md") == "B"
    assert choice_in(text, CITIES, "lenient_answer_colon") is None


def test_markdown_mode_rejects_a_list_of_choices():
    cases = [
        ("**Answer:** B", "B"),
        ("**Answer: B**", "B"),
        ("__Answer__: **B**", "B"),
        ("`Answer`: `B`", "B"),
        ("## Answer: (B)", "B"),
        ("**Final Answer**: **(B)** New York", "B"),
        ("**Answer**: [B]", "B"),
        ("**Answer**: (b)", "B"),
        ("**Answer**: ( B ) New York", "B"),
        ("**Answer**: **B** because it is large", "B"),
        ("**Answer**: B, because it is large", "B"),
        ("**Answer**: B. And it is large", "B"),
        ("**Answer**: A, because it is the capital", "A"),
        ("**Answer**: A (Canberra)", "A"),
        ("**Answer**: New York", "B"),
        ("**Answer**: (ب)", "B"),
        ("**Answer**: (খ)", "B"),
        ("**Answer**: （Ｂ）", "B"),
        ("**Answer**: (E)", None),
        ("**Answer**: (A) or (B)", None),
        ("**Answer**: A) or B)", None),
        ("**Answer**: A and B", None),
        ("**Answer**: A, B", None),
        ("**Answer**: (A), (B)", None),
        ("**Answer**: A & B", None),
        ("**Answer**: C or maybe B", None),
        ("**Answer**: **B** or **C**", None),
        ("**Answer**: A. or B.", None),
        ("**Answer**: ب أو ج", None),
        ("**Answer**: খ বা গ", None),
        ("**Answer**: A city in Australia", None),
        ("**Answer**: b is right", None),
        ("**Answer**: ...", None),
        ("**Answer**:", None),
    ]
    wrong = [
        (text, choice, found)
        for text, choice in cases
        if (found := choice_in(text, CITIES, "lenient_answer_colon_md")) != choice
    ]
    assert wrong == []


NOT_ONE_CHOICE = [
    "(Both)",
    "(Because I cannot tell)",
    "(Cannot be determined)",
    "(Don't know)",
    "(AB)",
    "AB",
    "B C",
    "(A or B)",
    "(A) Canberra or (B) New York",
    "A) Canberra B) New York C) York D) none",
    "A: Canberra or York",
    "A (or B)",
    "A; B",
    "A? or B",
    "A maybe B",
    "A as well as B",
    "A - B - C - D",
    "A) B) C) D)",
    "A. B. C. D.",
    "A: B: C: D",
    "A/B/C/D",
    "A、B",
    "A・B、C",
    "A … B",
    r"A \ B",
    r"A\B\C",
    r"$A \lor B$",
    r"$A \vee B \vee C$",
    "A ∨ B",
    "A • B",
    "A <br> B<br/>C",
    "A; if not, B",
    "A (B is also possible)",
    "A (B might be right)",
    "A. B works as well.",
    "A (B too)",
    "(A)(B)(C)(D)",
    "B is wrong",
    "B isn't right",
    "B cannot be right",
    "B? No.",
    "B, but possibly A",
    "B. It could also be A.",
    "B, or rather A",
    "B, no, wait, A",
    "B (60 %), A (40 %)",
    "B + A",
    "B > A",
    "B = A",
    "B to A",
    "not B",
    "Neither A nor B",
    "D.C.",
    "C++",
    "A-level",
    "Don't know",
    "I'm not sure",
    "B vs C",
    "B vs. C",
    "B versus A",
    "(B) vs (C)",
    "B) New York vs C) York",
    "B ou C",
    "B oder A",
    "B или C",
    "B、或 C",
    "BまたはC",
    "B: vs c",
    "B unless the question means C",
    "B, scratch that, C",
    "B, scratch that, A because it fits",
    "B. Wait, C is right",
    "B, correction: C",
    "B – I mean C",
    "B ❌",
    "B ❌ C ✅",
    "B ✗, C ✓",
    "B (wrong)",
    "~~B~~",
]


def test_text_that_is_not_one_choice_chooses_nothing():
    forms = {mode: r"\boxed{%s}" if mode.endswith("boxed") else "**Answer**: %s" for mode in GRADING_MODES}
    forms["lenient_answer_colon"] = "Answer: %s"
    wrong = [
        (mode, text, found)
        for mode, form in forms.items()
        for text in NOT_ONE_CHOICE
        if (found := choice_in(form % text, CITIES, mode)) is not None
    ]
    assert wrong == []


def test_several_boxes_choose_only_what_all_do():
    cases = {
        r"\boxed{A} or \boxed{B}": None,
        r"\boxed{A}, \boxed{B}": None,
        r"\boxed{B}\boxed{A}": None,
        r"\boxed{B} or \boxed{E}": None,
        r"\boxed{A}. Wait, \boxed{B}": "B",
        r"\boxed{B}, that is \boxed{B}": "B",
        "$\\boxed{B}$\n\n\\boxed{\\text{B}}": "B",
    }
    for mode in ("strict_single_letter_boxed", "lenient_boxed"):
        assert {text: choice_in(text, CITIES, mode) for text in cases} == cases


@pytest.mark.parametrize("mode", ["lenient_answer_colon", "lenient_answer_colon_md"])
def test_letter_with_another_options_text_chooses_nothing(mode):
    cases = {
        "A. New York": None,
        "A) York.": None,
        "A: new york": None,
        "B. York": None,
        "C. New York": None,
        "D: Canberra": None,
        "B. New York": "B",
        "B. New York, not York": "B",
        "A. York is too small": "A",
        "A. Sydney": "A",
        "A. A possible capital": "A",
        "A. B is also wrong": "A",
    }
    assert {text: choice_in(f"Answer: {text}", CITIES, mode) for text in cases} == cases
    assert choice_in("Answer: E: 5", NUMBERS, mode) == "E"
    assert choice_in("Answer: A: .5", Options.of_row([{"A": ".5"}, {"B": "5"}]), mode) == "A"


def test_bracketed_text_of_another_option_chooses_nothing():
    cases = {"(A) York": None, "A (New York)": None, "A – York.": None, "A (Canberra)": "A", "A (York is small)": "A"}
    found = {text: choice_in(f"**Answer**: {text}", CITIES, "lenient_answer_colon_md") for text in cases}
    assert found == cases


def test_letter_in_a_box_counts_with_any_text():
    for mode in ("strict_single_letter_boxed", "lenient_boxed"):
        assert choice_in(r"\boxed{A: New York}", CITIES, mode) == "A"


def test_crossed_out_choice_does_not_count():
    found = {mode: choice_in(r"Answer: \boxed{~~B~~ C}", CITIES, mode) for mode in GRADING_MODES}
    assert found == dict.fromkeys(GRADING_MODES, "C")


def test_rejected_options_may_follow_the_choice():
    texts = [
        "B ✅",
        "B (not C)",
        "B rather than C",
        "B, unlike C",
        "B because C is too small",
        "B since neither A nor C fits",
        "B. C is too small",
        "B. New York (C would be too small)",
        "B. Options A, C and D are wrong",
        "B. The others (A, C, D) do not fit.",
        "B, because I know it",
    ]
    found = {text: choice_in(f"Answer: {text}", CITIES, "lenient_answer_colon_md") for text in texts}
    assert found == dict.fromkeys(texts, "B")


@pytest.mark.parametrize("mode", GRADING_MODES)
def test_formulas_of_two_options_choose_nothing(mode):
    options = Options.of_row([{"A": "$1 / 16$"}, {"B": "$1 / 8$"}, {"C": "$1 / 4$"}, {"D": r"$\frac{1}{2}$"}])
    cases = {
        "B: $1 / 8$": "B",
        r"B) \(1/8\)": "B",
        r"D: $\frac{1}{2}$": "D",
        "B: $1 / 8$ C: $1 / 4$": None,
        "B: $1/8$, C: $1/4$": None,
        "B: $1 / 8$ $1 / 4$": None,
        "B: $1/8$ vs C": None,
        r"B) \(1/8\) C) \(1/4\)": None,
        r"D: $\frac{1}{2}$ C: $1 / 4$": None,
        r"D: $\frac12$, C: $\frac14$": None,
    }
    form = r"\boxed{%s}" if mode.endswith("boxed") else "Answer: %s"
    assert {text: choice_in(form % text, options, mode) for text in cases} == cases


def test_answer_may_go_on_in_the_next_line():
    cases = {"B\nor A": None, "B\nOr: A": None, "B,\nA": None, "B\nOrder matters.": "B", "B\n\nA is too small.": "B"}
    found = {text: choice_in(f"Answer: {text}", CITIES, "lenient_answer_colon_md") for text in cases}
    assert found == cases


def test_reasons_and_texts_may_follow_every_letter():
    options = Options.of_row([{letter: f"{letter.lower()}-text {letter} and B"} for letter in "ABCDEFGHI"])
    endings = [
        " because it fits",
        ", because A is wrong",
        " is correct",
        " since the others fail",
        " (%s)",
        " %s",
        ") %s",
        ". %s. (C) is too small",
        " - %s, whereas C is wrong",
        ": %s because (C) does not fit",
    ]
    wrong = [
        (text, found)
        for letter, texts in options.texts.items()
        for ending in endings
        for text in [letter + (ending % texts[0] if "%s" in ending else ending)]
        if (found := choice_in(f"**Answer**: {text}", options, "lenient_answer_colon_md")) != letter
    ]
    assert wrong == []


def test_box_mentions_an_option_without_negation_or_formula():
    options = Options.of_row([{"A": "blue"}, {"B": "red"}, {"C": "15"}, {"D": "-5"}])
    cases = {
        "the color blue": "A",
        "blue (not green)": "A",
        "not blue": None,
        "it isn't blue": None,
        "anything but blue": None,
        "neither blue": None,
        r"\neg blue": None,
        "blue is wrong": None,
        "blue is not it": None,
        "blue or pink": None,
        "pink and blue": None,
        "x = 15": "C",
        "{15}": "C",
        "15 units": "C",
        r"\approx 15": "C",
        r"15^\circ": "C",
        r"x \neq 15": None,
        "x > 15": None,
        r"2 \cdot 15": None,
        r"\frac{1}{15}": None,
        r"\sqrt{15}": None,
        "x^{15}": None,
        "15 + 3": None,
        "15 to 16": None,
        "(14, 15)": None,
        "15, 16": None,
        "4:15": None,
        "the length: 15": "C",
    }
    found = {text: choice_in(f"\\boxed{{{text}}}", options, "lenient_boxed") for text in cases}
    assert found == cases


@pytest.mark.parametrize("mode", GRADING_MODES[1:])
def test_case_distinguishes_options_that_differ_only_in_it(mode):
    options = Options.of_row([{"A": "GG"}, {"B": "Gg"}, {"C": "gg"}, {"D": "G"}])
    found = [choice_in(f"Answer: \\boxed{{{text}}}", options, mode) for text in ("GG", "Gg", "gg", "G", "gG", "g")]
    assert found == ["A", "B", "C", "D", None, "D"]


@pytest.mark.parametrize("mode", GRADING_MODES[1:])
def test_option_text_may_begin_with_letters(mode):
    options = Options.of_row([{"A": "B and C only"}, {"B": "A or D"}, {"C": "D, A"}, {"D": "A, B and C"}])
    found = {
        letter: [choice_in(f"Answer: \\boxed{{{form}}}", options, mode) for form in (text, f"{letter}: {text}")]
        for letter, (text,) in options.texts.items()
    }
    assert found == {letter: [letter] * 2 for letter in "ABCD"}


def test_labels_of_the_same_letter_are_rejected():
    with pytest.raises(ValueError, match="the labels 'G' and 'g' are the same letter"):
        Options.of_row([{"G": "Newton's constant"}, {"g": "an acceleration"}])


def test_option_text_may_look_like_several_letters():
    options = Options.of_row([{"A": "4"}, {"B": "6"}, {"C": "A and B"}, {"D": "A large house"}])
    assert choice_in("**Answer**: A and B", options, "lenient_answer_colon_md") == "C"
    assert choice_in("**Answer**: A large house", options, "lenient_answer_colon_md") == "D"


def test_patterns_are_tried_in_order():
    cases = [
        ([r"pick (\w)"], "I pick A; no, I PICK b", "B"),
        ([r"pick (\w)"], "I pick Z", "Z"),
        ([r"pick (\S+)"], "I pick (B).", "B"),
        ([r"pick (\S+)"], "I pick **B**", "B"),
        ([r"pick (.+)"], r"I pick \text{B}", "B"),
        ([r"pick (.+)"], "I pick New York", "B"),
        ([r"pick (.+)"], "I pick  new  york.", "B"),
        ([r"pick (.+)"], "I pick B: New York", "B"),
        ([r"pick (.+)"], "I pick E: elsewhere", None),
        ([r"pick (.+)"], "I pick nothing", None),
        ([r"pick (\w)"], "I pick ب", "B"),
        ([r"pick (\w)"], "I pick Ｂ", "B"),
        ([r"\b[A-D]$"], "it is B", "B"),
        ([r"first (\w)", r"second (\w)"], "second A, first B", "B"),
        ([r"first (\w)", r"second (\w)"], "second A", "A"),
        ([r"first (\w+)", r"second (\w)"], "first nothing, second A", "A"),
        ([r"first (\w)", r"second (\w)"], "neither", None),
    ]
    wrong = [
        (patterns, text, choice, found)
        for patterns, text, choice in cases
        if (found := choice_in(text, CITIES, "strict_single_letter_boxed", patterns, search)) != choice
    ]
    assert wrong == []


def test_mode_decides_if_no_pattern_does():
    cases = [(r"\boxed{A}", "A"), (r"pick B \boxed{A}", "B"), (r"pick nobody \boxed{A}", "A")]
    wrong = [
        (text, choice, found)
        for text, choice in cases
        if (found := choice_in(text, CITIES, "strict_single_letter_boxed", [r"pick (\w+)"], search)) != choice
    ]
    assert wrong == []


@pytest.mark.parametrize("mode", GRADING_MODES)
def test_option_without_text_is_chosen_by_its_letter(mode):
    options = Options.of_row([{"A": None}, {"B": ""}, {"C": "  "}])
    assert choice_in(r"Answer: \boxed{A}", options, mode) == "A"
    assert choice_in(r"Answer: \boxed{}", options, mode) is None
    assert choice_in(r"Answer: \boxed{None}", options, mode) is None


@pytest.mark.parametrize("mode", GRADING_MODES)
def test_options_may_be_spread_over_several_objects(mode):
    spread = Options.of_row([{"A": "one", "B": None}, {"A": None, "B": "two"}])
    assert spread == Options.of_row([{"A": "one"}, {"B": "two"}])
    assert choice_in(r"Answer: \boxed{B}", spread, mode) == "B"


def test_row_without_options_allows_every_letter():
    wrong = [
        (mode, found) for mode in GRADING_MODES if (found := choice_in(r"Answer: \boxed{Q}", NONE_LISTED, mode)) != "Q"
    ]
    assert wrong == []


def test_labels_of_all_scripts_are_normalised():
    cases = [("b", "B"), (" B ", "B"), ("ب", "B"), ("খ", "B"), ("Ｂ", "B"), ("1", "1")]
    wrong = []
    for label, letter in cases:
        options = Options.of_row([{label: "a text"}])
        found = (letter_of_label(label), options.allowed(letter))
        if found != (letter, letter):
            wrong.append((label, letter, found))
    assert wrong == []


@pytest.mark.parametrize("mode", GRADING_MODES)
def test_labels_that_are_not_letters_can_be_chosen(mode):
    numbered = Options.of_row([{"1": "one apple"}, {"2": "3"}, {"10": "Rome"}])
    answers = {"1": "1", "10": "10", r"\text{2}": "2", "3": None if mode == "strict_single_letter_boxed" else "2"}
    answers |= {"4": None, "1 or 2": None, "1.5": None}
    assert {answer: choice_in(rf"Answer: \boxed{{{answer}}}", numbered, mode) for answer in answers} == answers
    assert choice_in("I choose (1).", numbered, mode, [r"\(.+\)"], lambda *_: "(1)") == "1"


def test_huge_text_is_graded_without_delay():
    pieces = ["word ", r"\boxed{", "{", "*", " ", "Answer: ", "Answer:\n", "(", "A, ", "\\text{"]
    wrong = []
    for mode in GRADING_MODES:
        for piece in pieces:
            text = piece * 200_000 + "\nAnswer: \\boxed{B}"
            if (found := choice_in(text, CITIES, mode)) != "B":
                wrong.append((mode, piece, found))
    assert wrong == []


@pytest.mark.slow
def test_huge_answer_is_graded_without_delay():
    pieces = ["York ", "\\text{", "*", "B ", "(", "5,", "~", "\\ "]
    wrong = []
    for mode in GRADING_MODES:
        for piece in pieces:
            huge = piece * 100_000
            found = (
                choice_in(f"Answer: {huge}", CITIES, mode) in (None, "B"),
                choice_in(f"\\boxed{{{huge}}}", CITIES, mode) in (None, "C"),
            )
            if found != (True, True):
                wrong.append((mode, piece, found))
    assert wrong == []
