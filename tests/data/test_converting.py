"""Lines that cannot be converted: rejected by default, or left out and logged."""

from pathlib import Path

import pytest

from nemo_gym import DataError, convert_lines, convert_table
from nemo_gym.data.converting import MOST_REPORTED
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, Line
from tests.data.tables_as_files import parquet


def doubled(line: Line) -> JsonObject:
    if not isinstance(line.row.get("n"), int):
        raise DataError(f"line {line.number}: n: expected a number.")
    return {"n": 2 * line.row["n"]}


def lines_in(folder: Path, *lines: str) -> Path:
    path = folder / "in.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_bad_line_is_rejected_with_the_option(tmp_path: Path) -> None:
    rows = convert_lines(lines_in(tmp_path, '{"n": 1}', '{"n": "x"}'), doubled)
    assert next(rows) == {"n": 2}
    with pytest.raises(
        DataError, match=r"^line 2: n: expected a number. To leave out .*, prepare the data with --skip-bad.$"
    ):
        next(rows)


def test_bad_lines_are_skipped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = lines_in(tmp_path, '{"n": 1}', "", '{"n": "x"}', "no JSON", "[]", '{"n": 2}')
    assert list(convert_lines(path, doubled, skip_bad=True)) == [{"n": 2}, {"n": 4}]
    logged = [record.getMessage() for record in caplog.records]
    assert [message.partition(" not ")[0].partition(" expected ")[0] for message in logged] == [
        "skipped line 3: n:", f"skipped {path}:4:1:", f"skipped {path}:5:", "skipped 3 of 5 lines"
    ]  # fmt: skip


def test_only_the_first_skipped_lines_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = lines_in(tmp_path, '{"n": 1}', *["{}"] * (MOST_REPORTED + 9))
    assert len(list(convert_lines(path, doubled, skip_bad=True))) == 1
    assert len(caplog.records) == MOST_REPORTED + 1
    assert caplog.records[-1].getMessage() == f"skipped {MOST_REPORTED + 9} of {MOST_REPORTED + 10} lines"


def test_file_without_a_good_line_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^No line could be converted. The first problem: line 1: n: expected a"):
        list(convert_lines(lines_in(tmp_path, "{}", "{}"), doubled, skip_bad=True))
    assert list(convert_lines(lines_in(tmp_path), doubled, skip_bad=True)) == []


COLUMNS = {"question": str, "answer": int}


def answered(row: TableRow) -> JsonObject:
    if row.fields["answer"] < 0:
        raise DataError(f"{row.place}: column 'answer' is negative.")
    return {"number": row.number, **row.fields}


TABLES = {
    "a.jsonl": b"""{"question": "a", "answer": 1}

{"question": "b", "answer": "two"}
{"question": "c", "answer": -3}
{"question": "d"}
{"question":
[]
{"question": "g", "answer": 7}
""",
    "a.csv": b"question,answer\na,1\nb,two\nc,-3\nd\ne,f,5\ng,7\n",
    "a.json": b'[{"question": "a", "answer": 1}, {"question": "b"}, 3, {"question": "g", "answer": 7}]',
}
BAD_PLACES = {
    "a.jsonl": [":3", ":4", ":5", ":6", ":7"],
    "a.csv": [":3", ":4", ":5", ":6"],
    "a.json": [": row 2", ": row 3"],
}


@pytest.mark.parametrize("name", TABLES)
def test_bad_rows_of_tables_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(TABLES[name])
    places = [f"{path}{place}:" for place in BAD_PLACES[name]]
    with pytest.raises(DataError, match="--skip-bad") as caught:
        list(convert_table(path, COLUMNS, answered))
    assert str(caught.value).startswith(places[0])
    rows = list(convert_table(path, COLUMNS, answered, skip_bad=True))
    assert [row["question"] for row in rows] == ["a", "g"]
    assert [row["number"] for row in rows] == [1, len(places) + 2]
    *skipped, counted = [record.getMessage() for record in caplog.records]
    assert [message[: len(f"skipped {place}")] for message, place in zip(skipped, places, strict=True)] == [
        f"skipped {place}" for place in places
    ]
    assert counted == f"skipped {len(places)} of {len(places) + 2} lines"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl.gz", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20, "cannot be read as a JSON Lines file"),
        ("a.csv", b"question,label\na,1\n", "column 'answer' is missing"),
        ("a.parquet", parquet([{"question": "a", "label": 1}]), "column 'answer' is missing"),
    ],
)
def test_faults_of_whole_tables_are_not_skipped(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=problem) as caught:
            list(convert_table(path, COLUMNS, answered, skip_bad=skip_bad))
        assert str(caught.value).startswith(f"{path}: ")
        assert "--skip-bad" not in str(caught.value)
