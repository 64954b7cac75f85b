"""Lines that cannot be converted: rejected by default, or left out and logged."""

from pathlib import Path

import pytest

from nemo_gym import DataError, convert_lines
from nemo_gym.data.converting import MOST_REPORTED
from nemo_gym.jsonl import JsonObject, Line


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
    with pytest.raises(DataError, match=r"^line 2: n: expected a number. To leave out such lines, add --skip-bad.$"):
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
    with pytest.raises(DataError, match="No line could be converted"):
        list(convert_lines(lines_in(tmp_path, "{}", "{}"), doubled, skip_bad=True))
    assert list(convert_lines(lines_in(tmp_path), doubled, skip_bad=True)) == []
