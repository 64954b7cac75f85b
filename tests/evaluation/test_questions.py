"""Turning tables of questions into rows, for each grader."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.evaluation.questions import Columns, questions_of, write_questions
from nemo_gym.jsonl import read_rows

TABLE = "q,a,kind\nWhich?,red,x\nAnd this?,blue,y\nThat?,Red,x\n"
COLUMNS = Columns("q", "a")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "q.csv"
    path.write_text(TABLE)
    return path


def test_rows_have_question_answer_and_metadata(table: Path) -> None:
    rows, notes = questions_of(table, COLUMNS, "exact")
    assert notes == []
    assert rows[0] == {
        "question": "Which?", "expected_answer": "red", "grader": "exact", "metadata": {"row": 2, "kind": "x"},
    }  # fmt: skip


def test_choice_uses_all_answers_or_a_column(table: Path) -> None:
    rows = questions_of(table, Columns("q", "a", subset="kind"), "choice").rows
    assert [row["options"] for row in rows] == [["blue", "red"]] * 3
    assert (rows[0]["choices"], rows[1]["subset"]) == ("- blue\n- red", "y")
    table.write_text("q,a,o\nWhich?,red, green | red |blue\n")
    (row,) = questions_of(table, Columns("q", "a", options="o"), "choice").rows
    assert row["options"] == ["green", "red", "blue"]


def test_answers_may_be_letters_or_indices(table: Path) -> None:
    cases = [("letter", ["C", "(b)", "a."]), ("index", ["2", "1", "0.0"])]
    for form, answers in cases:
        table.write_text("q,a,o\n" + "".join(f"{n},{answer},red|green|0\n" for n, answer in enumerate(answers)))
        rows = questions_of(table, Columns("q", "a", options="o", answer_is=form), "choice").rows
        assert [row["expected_answer"] for row in rows] == ["0", "green", "red"]


def test_answer_without_its_option_is_reported(table: Path) -> None:
    for form, answer in (("letter", "D"), ("letter", "green"), ("index", "3"), ("index", "-1"), ("index", "green")):
        table.write_text(f"q,a,o\nx,{answer},red|green|0\n")
        with pytest.raises(
            DataError, match=f"row 2, column 'a': '{answer}' is not the {form} of one of the 3 options"
        ):
            questions_of(table, Columns("q", "a", options="o", answer_is=form), "choice")
    with pytest.raises(DataError, match="answers as letter need a column with the options"):
        questions_of(table, Columns("q", "a", answer_is="letter"), "choice")


def test_comments_above_the_header_are_skipped(table: Path) -> None:
    table.write_text('# From "our" help desk, May 2026\n#\n\n# q;a;b;c\nq,a\nWhich?,red\n# 1?,blue\n')
    rows = questions_of(table, COLUMNS, "exact").rows
    assert [(row["question"], row["metadata"]["row"]) for row in rows] == [("Which?", 6), ("# 1?", 7)]
    table.write_text("#id,q,a\n1,Which?,red\n")
    assert questions_of(table, COLUMNS, "exact").rows[0]["metadata"] == {"row": 2, "#id": "1"}


def test_judged_rows_name_no_grader(table: Path) -> None:
    assert all("grader" not in questions_of(table, COLUMNS, grader).rows[0] for grader in ("judge", "rubric"))
    assert "expected_answer" not in questions_of(table, Columns("q"), "rubric").rows[0]


def test_rows_and_examples_are_written(table: Path, tmp_path: Path) -> None:
    output = write_questions(table, tmp_path / "data" / "q.jsonl", grader="exact", question="q", answer="a")
    assert len(list(read_rows(output))) == len(list(read_rows(output.with_name("example.jsonl")))) == 3


def test_repeated_questions_are_noted(table: Path) -> None:
    table.write_text(f"{TABLE}Which?,red,z\n")
    (note,) = questions_of(table, COLUMNS, "exact").notes
    assert "1 question asked more than once, such as in rows 2, 5" in note


@pytest.mark.parametrize(
    ("text", "columns", "grader", "message"),
    [
        ("q,a\n,red\n", COLUMNS, "exact", "row 2, column 'q': the question is empty"),
        ("q,a\nWhich?,\n", COLUMNS, "exact", "row 2, column 'a': the answer is empty"),
        ("q,a\nx,1\nHow many?,many\n", COLUMNS, "number", "row 3, column 'a': 'many' is not a number"),
        ("q,a\nWhich?,(a\n", COLUMNS, "regex", r"row 2, column 'a': '\(a' is not a regular expression"),
        ("q,a,o\nx,red,blue|green\n", Columns("q", "a", "o"), "choice", "the answer 'red' is not exactly one of"),
        ("q,a\nx,red\ny,red\n", COLUMNS, "choice", "1 different answer, but a choice needs 2 to 50"),
        ("q,a,s\nx,red,\n", Columns("q", "a", subset="s"), "exact", "row 2, column 's': the subset is empty"),
        ("q,a\nx,red\n", Columns("q"), "exact", "grader 'exact' needs a column with the answers"),
        ("q,a\n", COLUMNS, "exact", "has a header, but no questions"),
        ("q,a\n" + ",\n".join(["x"] * 15) + ",\n", COLUMNS, "exact", "and 5 more cells with a mistake"),
    ],
)
def test_mistakes_name_row_and_column(table: Path, text: str, columns: Columns, grader: str, message: str) -> None:
    table.write_text(text)
    with pytest.raises(DataError, match=message):
        questions_of(table, columns, grader)  # type: ignore[arg-type]
