"""Reading tables that people made, with their mistakes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.evaluation.sheets import read_sheet

ROWS = [(2, {"Question": "How many?", "Answer": "3,5"}), (4, {"Question": "Line 1\nline 2", "Answer": ""})]


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_delimiter_and_mark_are_recognized(tmp_path: Path, delimiter: str, mark: str) -> None:
    lines = [("Question", " Answer "), ("How many?", '"3,5"'), ("", ""), ('"Line 1\nline 2"', "")]
    text = mark + "".join(delimiter.join(line) + "\r\n" for line in lines)
    sheet = read_sheet(written(tmp_path, "q.csv", text))
    assert sheet.columns == ("Question", "Answer")
    assert [tuple(row) for row in sheet.rows] == [(number, {**cells}) for number, cells in ROWS]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_header_decides_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    sheet = read_sheet(written(tmp_path, "q.csv", f'\n"Question\n(short)"{delimiter}Answer\nWhich?{delimiter}a\n'))
    assert [tuple(row) for row in sheet.rows] == [(3, {"Question\n(short)": "Which?", "Answer": "a"})]


def test_cells_may_be_documents(tmp_path: Path) -> None:
    sheet = read_sheet(written(tmp_path, "q.csv", f"question,answer\n{'x' * 200_000},a\n"))
    assert len(sheet.rows[0].cells["question"]) == 200_000


def test_excel_cells_become_text(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    day = datetime.datetime(2026, 3, 1)
    for cells in ([], ["Question", "Answer", None], ["How many?", 3.0, None], [], [" When? ", day], [None, True]):
        book.active.append(cells)
    book.save(tmp_path / "q.xlsx")
    sheet = read_sheet(tmp_path / "q.xlsx")
    assert [(row.number, list(row.cells.values())) for row in sheet.rows] == [
        (3, ["How many?", "3"]), (5, ["When?", "2026-03-01"]), (6, ["", "true"]),
    ]  # fmt: skip


def test_json_lines_may_lack_fields(tmp_path: Path) -> None:
    sheet = read_sheet(written(tmp_path, "q.jsonl", '{"q": "Which?", "options": ["a", 2]}\n{"a": 1.5}\n'))
    assert sheet.columns == ("q", "options", "a")
    assert [row.cells for row in sheet.rows] == [
        {"q": "Which?", "options": "a|2", "a": ""},
        {"q": "", "options": "", "a": "1.5"},
    ]


def test_column_names_ignore_case(tmp_path: Path) -> None:
    sheet = read_sheet(written(tmp_path, "q.csv", "Question,answer\nx,y\n"))
    assert sheet.column("question ") == "Question"
    with pytest.raises(DataError, match=r"q\.csv: column 'anwser' is missing. Did you mean 'answer'\?"):
        sheet.column("anwser")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.csv", "", "the table is empty"),
        ("q.csv", "a,b\n1,2,3\n", "row 2 has 3 cells, but the header has 2"),
        ("q.csv", "a,,b\n", "row 1: column 2 does not have a name"),
        ("q.csv", "a,b,a\n", "row 1: two columns are named 'a'"),
        ("q.csv", 'a,b\n"open\n', "not a CSV file"),
        ("q.csv", "caf\xe9".encode("latin-1"), "not UTF-8 text .* Save it as 'CSV UTF-8'"),
        ("q.xlsx", "no zip", "not a readable Excel file"),
        ("q.txt", "a", "a table must be one of .csv"),
        ("q.jsonl", "", "the file is empty"),
        ("q.jsonl", '{"a": {"b": 1}}', r"q.jsonl:1: a: expected text, a number or a list"),
    ],
)
def test_mistakes_name_the_row(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_sheet(written(tmp_path, name, content))


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="file not found"):
        read_sheet(tmp_path / "none.csv")
