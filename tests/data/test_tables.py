"""Reading the columns of public tables."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.data.tables import read_table
from nemo_gym.jsonl import JsonObject

ROWS = [
    {"question": "2 + 2?", "answer": 4, "options": ["3", "4"], "image": None},
    {"question": 'Say "a,\nb"', "answer": 7, "options": [], "image": "data:…"},
]
DAMAGED_GZIP = b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20
"""The header is right, the compressed data is not."""
COLUMNS = {"question": str, "options": list[str], "image": str | None}


def write_json_lines(path: Path, rows: list[JsonObject]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_json(path: Path, rows: list[JsonObject]) -> None:
    path.write_text(json.dumps(rows, indent=1))


def write_parquet(path: Path, rows: list[JsonObject]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)


WRITERS = [("a.jsonl", write_json_lines), ("a.json", write_json), ("a-00000-of-00001.parquet", write_parquet)]
each_format = pytest.mark.parametrize(("name", "write"), WRITERS)
Write = Callable[[Path, list[JsonObject]], None]


@each_format
def test_wanted_columns_are_read(tmp_path: Path, name: str, write: Write) -> None:
    path = tmp_path / name
    write(path, ROWS * 300)
    assert list(read_table(path, COLUMNS)) == [{key: row[key] for key in COLUMNS} for row in ROWS * 300]


@each_format
def test_missing_column_is_reported(tmp_path: Path, name: str, write: Write) -> None:
    path = tmp_path / name
    write(path, ROWS)
    with pytest.raises(DataError) as caught:
        list(read_table(path, {"question": str, "label": str}))
    assert str(caught.value).startswith(str(path))
    assert "column 'label' is missing. The columns are question, answer, options, image." in str(caught.value)


@each_format
def test_value_of_another_type_is_reported(tmp_path: Path, name: str, write: Write) -> None:
    path = tmp_path / name
    write(path, ROWS)
    for types, problem in (
        ({"answer": str}, "column 'answer': Input should be a valid string, found int 4."),
        ({"image": str}, "column 'image': Input should be a valid string, found NoneType None."),
        ({"options": list[int]}, "column 'options'[0]: Input should be a valid integer, found list ['3', '4']."),
    ):
        with pytest.raises(DataError) as caught:
            list(read_table(path, types))
        assert problem in str(caught.value)


def write_csv(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def test_csv_is_read_with_and_without_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_csv(path, [["question", "number"], ['Say "a,\nb"', "7"]])
    assert list(read_table(path, {"question": str, "number": int})) == [{"question": 'Say "a,\nb"', "number": 7}]
    write_csv(path, [["2 + 2?", "3", "4", "B"]])
    assert list(read_table(path, {"0": str, "3": str})) == [{"0": "2 + 2?", "3": "B"}]
    write_csv(path, [["question", "number"], ["a", "1"], ["b", "x"], ["c"]])
    with pytest.raises(DataError, match=r"a\.csv:3: column 'number': Input should be a valid integer"):
        list(read_table(path, {"question": str, "number": int}))
    write_csv(path, [["question", "number"], ["a, b", "1", "", ""]])
    assert list(read_table(path, {"question": str, "number": int})) == [{"question": "a, b", "number": 1}]
    write_csv(path, [["question", "number"], ["c"]])
    with pytest.raises(DataError, match=r"a\.csv:2: column 'number' is missing"):
        list(read_table(path, {"number": int}))


def test_unquoted_comma_in_csv_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,answer\n2 + 2?,4\nWhat is 1, 2?,3\n")
    rows = read_table(path, {"question": str, "answer": str})
    assert next(rows) == {"question": "2 + 2?", "answer": "4"}
    with pytest.raises(DataError, match=r"a\.csv:3: the row has 3 values, but the header has 2 columns\. Put values"):
        next(rows)


def test_long_value_in_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_csv(path, [["document"], ["x" * 200_000]])
    assert list(read_table(path, {"document": str})) == [{"document": "x" * 200_000}]


def test_gzipped_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "2 + 2?"}\n'))
    assert list(read_table(path, {"question": str})) == [{"question": "2 + 2?"}]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.parquet", b"PAR1 not", "cannot be read as a Parquet file ("),
        ("a.jsonl", b'{"question": "a"}\n{', "a.jsonl:2:2: not valid JSON ("),
        ("a.jsonl", b"[1]\n", "a.jsonl:1: expected a JSON object, found list."),
        ("a.json", b"{}", "expected a list of objects, found dict."),
        ("a.csv", b"question\n\xff\xfe", "cannot be read as a CSV file ("),
        ("a.jsonl.gz", b"plain", "cannot be read as a JSON Lines file ("),
        ("a.jsonl.gz", DAMAGED_GZIP, "). Correct or replace the file."),
        ("a.xml", b"", "a table must be one of .parquet, .csv, .jsonl, .json. Convert the file."),
    ],
)
def test_unreadable_file_is_reported(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_table(path, {"question": str}))
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.json.gz"])
def test_missing_file_is_reported_by_its_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_table(tmp_path / name, {"question": str}))
    assert str(caught.value) == f"{tmp_path / name}: file not found. Check the path, or create the file."


def test_damaged_download_may_be_downloaded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(DAMAGED_GZIP)
    (tmp_path / "a.jsonl.gz.source.json").write_text("{}")
    with pytest.raises(DataError, match=r"\)\. Delete the file to download it again\.$"):
        list(read_table(path, {"question": str}))
