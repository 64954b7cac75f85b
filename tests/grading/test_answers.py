"""Finding the final answer of a reply, and comparing it with the expected text."""

from nemo_gym.grading import final_answer, same_text
from tests.each_case import each_case


@each_case(
    "text",
    [
        "Answer: 7", "**Answer:** 7", "Answer: **7**.", "Answer: `7`.", "Answer: **`7`**.", "Answer: $7$.",
        "**Answer: 7**.", "Answer: 7\n---", "Answer: 7\n***\nSome more.", "Answer:\n---\n7", "Answer: 7\n======",
        "Answer: 7\u200b", "Answer:\u200b 7", "\ufeffAnswer: 7", "\u200bAnswer:\u00a07\u00a0", "Answer: **7**\u2060",
        "Thought.\n\ufeff**Answer:** **7**.\u200b", "Answer: 7\u202f",
    ],
)  # fmt: skip
def test_marks_and_invisible_ends_are_not_answer(text):
    assert final_answer(text) == "7"


@each_case(
    ("text", "answer"),
    [
        ("Answer: \u200b", None),
        ("Answer: ---", "---"),
        ("Answer:\n---\n", None),
        ("Answer: 7\u200b8", "7\u200b8"),
        ("Answer: **7** or **8**.", "7** or **8"),
        ("Answer: 7\n--\n8", "7 -- 8"),
        ("Answer: -7", "-7"),
        ("Answer: 7.", "7."),
        ("Answer: .7", ".7"),
    ],
)
def test_everything_else_belongs_to_the_answer(text, answer):
    assert final_answer(text) == answer


@each_case(("one", "other", "is_same"), [("Crow's Rib", "Crow’s Rib", True), ("Crow's Rib", "Crows Rib", False)])
def test_curly_apostrophe_is_a_straight_one(one, other, is_same):
    assert same_text(one, other, keeps_case=True) == is_same
    assert same_text(other, one, keeps_case=True) == is_same
