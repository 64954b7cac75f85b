"""Reading rubrics as people write them."""

from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.grading import read_rubric
from tests.each_case import each_case

FORMS = (
    ("- polite (2): It is friendly.", [("polite", 2, "It is friendly.")]),
    ("* **Polite** (weight 2) It is friendly.", [("Polite", 2, "It is friendly.")]),
    ("1. **Polite (2)**: It is friendly.", [("Polite", 2, "It is friendly.")]),
    ("- polite: It is friendly. (weight: 0,5)", [("polite", 0.5, "It is friendly.")]),
    ("- polite [20 %] - It is friendly.", [("polite", 20, "It is friendly.")]),
    ("- It is friendly.\n- It is short. (3 points)",
     [("criterion 1", 1, "It is friendly."), ("criterion 2", 3, "It is short.")]),
    ("- polite\n  It is\n\n  friendly.\n  - and warm", [("polite", 1, "It is friendly. - and warm")]),
    ("# Replies\nOf a shop.\n## Tone (2)\nIt is friendly.\n## Facts\nIt is true.",
     [("Tone", 2, "It is friendly."), ("Facts", 1, "It is true.")]),
    ("Notes (see (1)).\n\n## Tone\n- polite (1): It is friendly (always).\n",
     [("polite", 1, "It is friendly (always).")]),
    ("+ names the law (BGB): It does.", [("names the law (BGB)", 1, "It does.")]),
    ("- law: cites the Data Act (2023) correctly\n- polite (2): is polite",
     [("law", 1, "cites the Data Act (2023) correctly"), ("polite", 2, "is polite")]),
    ("- parts: (a) a greeting (1), (b) half (50%) of the points (10 points) explained",
     [("parts", 1, "(a) a greeting (1), (b) half (50%) of the points (10 points) explained")]),
    ("- **Law (BGB)** (2): cites it (1900) correctly", [("Law (BGB)", 2, "cites it (1900) correctly")]),
    ("- **Law** (BGB) (2): cites it", [("Law", 2, "(BGB) : cites it")]),
    ("- names, dates etc. (2): It has them.", [("names, dates etc.", 2, "It has them.")]),
    ("- (2 points) polite - It is friendly.", [("polite", 2, "It is friendly.")]),
)  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "rubric.md"
    path.write_text(text)
    return path


@each_case(("text", "expected"), FORMS)
def test_usual_forms_are_read(text, expected, tmp_path):
    rubric = read_rubric(written(tmp_path, text))
    assert [(each.name, each.weight, each.text) for each in rubric.criteria] == expected


def test_text_before_the_criteria_is_the_introduction(tmp_path):
    rubric = read_rubric(written(tmp_path, "\ufeff# Title\n\nReplies of\na shop.\n\n- a (1): x\n- b (3): y\n"))
    assert rubric.introduction == "Replies of a shop."
    assert [rubric.reward(met) for met in ([], ["a"], ["b"], ["b", "a"])] == [0.0, 0.25, 0.75, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"rubric.md: the rubric does not have a criterion. Write a criterion as"),
        ("# Only a title\nand text", "does not have a criterion"),
        ("- a: x\n- b (weight two): y", r"rubric.md:2: the weight '\(weight two\)' is not a positive number"),
        ("- a (0): x", r"rubric.md:1: the weight '\(0\)' is not a positive number"),
        ("- a (-1): x", "is not a positive number"),
        ("- a: x\n\n- A (2): y", "rubric.md:3: the criterion 'A' is already in line 1"),
        ("- (2)", "rubric.md:1: the criterion is empty"),
        (
            "- a: x\n- b: names the 14-day deadline (14)",
            r"rubric.md:2: '\(14\)' could be a weight or a part of the text",
        ),
        ("- a: (2) a greeting and (1) a name", r"rubric.md:1: '\(2\)' could be a weight or a part of the text"),
        ("- **Law** cites the Act (3)", "could be a weight or a part of the text"),
        ("- It is short. (3)", "could be a weight or a part of the text"),
        ("- a: names the discount (20 %).", "could be a weight or a part of the text"),
        ("- a: x\n- big (1,000): y", r"rubric.md:2: the weight '\(1,000\)' has a thousands separator"),
        ("- the Data Act (2023): cites it", r"rubric.md:1: the weight '\(2023\)' is larger than 1000"),
    ],
)
def test_mistakes_name_the_line(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_rubric(written(tmp_path, text))


def test_missing_or_binary_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"there is no file 'no/rubric.md'"):
        read_rubric(Path("no/rubric.md"))
    (tmp_path / "rubric.md").write_bytes(b"- caf\xe9")
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_rubric(tmp_path / "rubric.md")
