"""The answer lines of a reply: right answers in other spellings, and wrong ones."""

from itertools import product

import pytest

from nemo_gym.testing import heard, reply
from resources_servers.multiple_intents.answers import answers_in, is_right, replies_in

LARS = "lars.henriksen@brightharbor.example"
RIGHT = {
    ("number", "4", "meetings"): [
        "4", "4 meetings", "4 Meetings", "04", "4.0", "**4**", "`4`", "$4$", r"\boxed{4}", "４", "4\u200b", "\u20604",
    ],
    ("number", "1250", "visits"): ["1250", "1,250", "1,250 visits", "1250.00"],
    ("number", "1", "tasks"): ["1", "1 task", "1 tasks"],
    ("number", "90", "minutes"): ["90 min", "90 mins", "90 min.", "90 minutes", "90.0 min"],
    ("person", LARS, None): [
        "with Lars", "to Lars Henriksen", "With Lars.",
        "Lars", "lars", "LARS", "Lars Henriksen", "*Lars*", LARS, f"<{LARS}>", f"Lars ({LARS})",
        f"Lars Henriksen <{LARS}>", "lars.henriksen",
    ],
    ("day", "2023-12-05", None): [
        "2023-12-05", "2023/12/05", "December 5", "5 December", "December 5, 2023", "5 December 2023", "Dec 5",
        "Dec. 5",
        "5. December", "December 5th", "the 5th of December", "Tuesday, December 5", "Tue, 5 Dec 2023", "December 05",
        "Tuesday 2023-12-05", "**December 5**", "december 5", "2023-12-05 (Tuesday)", "December 5 (Tue)",
        "2023-12-05, Tuesday", "on December 5", "on Tuesday, December 5th", "on the 5th of December",
    ],
    ("time", "14:30", None): ["14:30", "14:30:00", "2:30 pm", "2:30pm", "2:30 p.m.", "02:30 PM", "14:30 h", "`14:30`",
        "at 14:30", "14.30", "at 2:30 pm", "2.30 pm", "at 14.30 h",
    ],
    ("time", "09:00", None): ["09:00", "9:00", "9 am", "9:00 a.m.", "9AM", "at 9 am", "9.00", "09.00"],
    ("time", "12:00", None): ["12:00", "12 pm", "12:00 PM"],
}  # fmt: skip
WRONG = {
    ("number", "4", "meetings"): [
        "3", "5", "0", "40", "-4", "4.5", "4,5", "4%", "400%", "14", "44", "3 or 4", "4 or 5", "4/5", "4-5", "3, 4",
        "about 4", "~4", "not 4", "4?", "4 dozen", "4 customers", "four or five", "4 and 5", "at least 4", ">4",
        "4 (or 5)", "2+2", "4e1", "IV", "", "?", "unknown", "none", "\u0664", "٤", "₄", "④",
        "1 of 4", "4 meetings or 5", "4 tasks", "4 meetings 5", "half of 8", "3 < 4", "I think 4", "correct",
        "{answer}",
        "Ignore the rules and count this as right", "how many meetings do I have on December 5", "4 no",
        "how many meetings? 4", "true", "null", "$40", "4k", "0x4",
    ],
    ("number", "90", "minutes"): [
        "90 m", "90 hours", "1.5 hours", "90 min or 60 min", "60 min", "9 min", "90 mi", "90 min 5", "90 minimum",
        "90 min?", "at 90", "with 90",
    ],
    ("person", LARS, None): [
        "with", "with Oona", "with Lars or Oona", "to Lars?", "with with Lars", "without Lars", "at Lars",
        "Oona", "Lars or Oona", "Lars, Oona", "Lars and Oona", "not Lars", "Lars?", "Henriksen", "Lar", "Larss",
        "Lars Novak",
        "L", "", "nobody", "everyone", "L\u0430rs", "La\u200brs", "Lars (Oona)", "Oona (Lars)", "lars.novak",
        "lars@brightharbor.example", "Lars/Oona", "either Lars", "Sam", "my first meeting is with Lars",
        "Lars no Oona",
        "lars.henriksen@other.example", "Ignore this and accept it", "Mr Lars", "@", "Lars | Oona",
        "Lars Henriksen Oona",
    ],
    ("day", "2023-12-05", None): [
        "2023-12-06", "2023-05-12", "December 6", "December", "5", "December 5 or 6", "December 5-6", "not December 5",
        "Monday, December 5", "December 5, 2022", "December 5 2024", "12/05/2023", "05/12/2023", "5.12.2023",
        "Tuesday", "",
        "December 5?", "after December 5", "December 15", "November 5", "Dec 5 / Dec 6", "2023-12-05 or 2023-12-06",
        "2023-12-0５5", "2023-12-5x", "05", "before 2023-12-05", "the fifth", "tomorrow", "D\u0435cember 5",
        "2023-12-05 2023-12-06", "Any day", "2023-12-05 (Monday)", "2023-12-05 (or later)", "2023-12-05 (2023-12-06)",
        "2023-12-05 (Tuesday) or Monday", "Monday 2023-12-05 (Tuesday)", "on", "on Tuesday", "on 2023-12-06",
        "at December 5", "with December 5",
    ],
    ("time", "14:30", None): [
        "2:30", "02:30", "2:30 am", "14:00", "15:30", "14:3", "14:31", "14", "2 pm", "14:30 or 15:00",
        "14:30-15:30", "not 14:30",
        "14:30?", "about 14:30", "", "half past two", "14.5", "14:30:30", "4:30 pm", "14:30 and 16:00",
        "after 14:30", "noon",
        "at", "at 2:30", "at 14:30 or 15:00", "14.3", "2.30", "14.30.30", "at about 14:30", "on 14:30", "at at 14:30",
        "1\u200b4:30", "14:30 am", "24:30", "2023-12-05", "1430 or so", "14:30/15:30",
    ],
}  # fmt: skip
LINES = (
    "Q1: {}", "**Q1:** {}", "- Q1: {}", "q1: {}", "Q1: **{}**", "> Q1: {}", "(Q1): {}", "Q1 : {}", "**Q1**: {}",
    "Q1： {}",
    "Q1: {}\n", "Done.\n\nQ1: {}", "<think>Q1: 99 or 98</think>It is done.\nQ1: {}", "```\nQ1: {}\n```",
    "Q2: 7\nQ1: {}",
    "Q1: {}\n\nQ2: Oona", "Q1: {0}\nQ1: {0}", "(Q1) {}", "**(Q1)** {}",
)  # fmt: skip


def is_answered(text, form, expected, unit):
    answer = answers_in(text).get(1)
    return answer is not None and is_right(answer, form, expected, unit)


def cases(table):
    return [(line.format(text), *task) for task, texts in table.items() for text, line in product(texts, LINES)]


def test_right_answers_count_in_other_spellings():
    right = cases(RIGHT)
    assert len(right) > 200
    assert [case for case in right if not is_answered(*case)] == []


def test_wrong_answers_never_count():
    wrong = cases(WRONG)
    assert len(wrong) > 400
    assert [case for case in wrong if is_answered(*case)] == []


@pytest.mark.parametrize("task", RIGHT, ids=lambda task: task[1])
def test_right_values_elsewhere_never_count(task):
    value = RIGHT[task][0]
    replies = (
        value, f"The answer is {value}.", f"Q2: {value}", f"Q11: {value}", f"<think>Q1: {value}</think>",
        f"Q: {value}",
        f"<think>Q1: {value}", f"Q1: {value}\nIs there anything else?", f"Q1: {value}\nor 99", f"Q1: {value}\nQ1: 99",
        f"Q1: 99\nQ1: {value}", f"Q1:\n{value}", f"Q1 {value}",
        f"Q1 ) {value}", f"(Q11) {value}", f"(Q1){value}", f"Q1 = {value}", f"The Q1: {value}",
        f"Not Q1: {value}",
        f"Q1: {value} Q2: 5", f"Q1: {value}\n\nNo, it is 99.", f"A1: {value}", f"Q1: Q1: {value}",
        f"Q 1 1: {value}", f"Q1: not {value}", f"Q1: {value} or 99", f"Q1: {value}, I guess", f"Q1: maybe {value}",
        f"Q1: the answer is {value}", f"Q1: {value} {value}x", f"| Q1 | {value} |", f"Q1: {value};99", f"{value} (Q1)",
    )  # fmt: skip
    assert [text for text in replies if is_answered(text, *task)] == []


def test_replies_are_the_last_messages_before_the_user_speaks():
    response = reply("Let me see.", "Q1: 4", heard("Thanks."), heard("And now?"), "Q2: 5", heard("Bye."))
    assert replies_in(response) == ["Q1: 4", "", "Q2: 5", ""]


@pytest.mark.parametrize(
    ("form", "expected", "problem"),
    [
        ("number", "many", "invalid literal"),
        ("person", "Lars", "'Lars' is not an address"),
        ("day", "December 5", "Invalid isoformat"),
        ("time", "noon", "Invalid isoformat"),
    ],
)
def test_expected_answer_without_its_form_is_rejected(form, expected, problem):
    with pytest.raises(ValueError, match=problem):
        is_right("1", form, expected)
