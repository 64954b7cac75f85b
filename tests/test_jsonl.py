"""JSON Lines: complete rows or an error with its place, and no half-written files."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import textwrap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym import jsonl
from nemo_gym.errors import DataError
from nemo_gym.opaque import loads_opaque
from tests.each_case import each_case

pytestmark = pytest.mark.bare

ROWS = [{"a": 1}, {"a": [True, None, "ü\n"]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


@each_case(
    "written",
    [
        b'{"a": 1}\n{"a": [true, null, "\\u00fc\\n"]}\n',
        b'{"a": 1}\n{"a": [true, null, "\\u00fc\\n"]}',
        b'\xef\xbb\xbf{"a": 1}\r\n{"a": [true, null, "\xc3\xbc\\n"]}\r\n',
        b'\n  \n{"a": 1}\n\r\n\t{"a": [true, null, "\xc3\xbc\\n"]}  \n\n',
    ],
)
def test_rows_do_not_depend_on_file_format(path, written):
    path.write_bytes(written)
    assert list(jsonl.read_rows(path)) == ROWS


def test_blank_lines_count_in_line_numbers(path):
    path.write_bytes(b'\n{"a": 1}\n\n{"a": 2}\n')
    assert [(line.number, line.raw) for line in jsonl.read_lines(path)] == [(2, b'{"a": 1}'), (4, b'{"a": 2}')]


@each_case(
    ("line", "column"),
    [(b'{"a": 1,}', 8), (b'  {"a": oops}', 9), (b'{"a": NaN}', 7), (b'{"a": 1} {"b": 2}', 10), (b'{"a": "\xff"}', 1)],
)
def test_invalid_json_reports_file_line_and_column(path, line, column):
    path.write_bytes(b'{"a": 0}\n' + line + b"\n")
    with pytest.raises(DataError) as error:
        list(jsonl.read_rows(path))
    assert str(error.value).startswith(f"{path}:2:{column}: not valid JSON (")


@each_case("line", [b"\0" * 4096, b'{"a": 1, "b\0\0\0', b"\0\0" + b'{"a": 1}'])
def test_zeroed_block_is_reported_with_advice(path, line):
    path.write_bytes(b'{"a": 0}\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"rows\.jsonl:2: .* null bytes, .* sed -i '2d' {path}$"):
        list(jsonl.read_rows(path))


@each_case(
    ("content", "place", "words"),
    [
        (gzip.compress(b'{"a": 1}\n'), "", "the file is compressed (gzip). Decompress it first: gzip -dk "),
        (b"\x28\xb5\x2f\xfd\x04\x00", "", "the file is compressed (zstd). Decompress it first: zstd -dk "),
        ('{"a": 1}\n'.encode("utf-16"), "", "not in UTF-8 but probably in UTF-16. Convert it"),
        ('{"a": 1}\n'.encode("utf-16-le"), "", "not in UTF-8 but probably in UTF-16. Convert it"),
        (
            '{"a": "café"}'.encode("latin-1"),
            ":1:1",
            "(the byte 0xe9 is not UTF-8). Convert it, for example if it is ISO-8859-1",
        ),
        (b'{"a": 1}\n{"a": NaN}', ":2:7", "(NaN is not JSON). Write null, or leave the field out."),
        (b'{"a": [1, Infinity]}', ":1:11", "(Infinity is not JSON). Write null"),
        (b'{"a": -Infinity}', ":1:8", "(Infinity is not JSON). Write null"),
        (b'{"a": Nancy}', ":1:7", "not valid JSON (unexpected character"),
    ],
)
def test_other_encodings_and_values_are_named(path, content, place, words):
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        list(jsonl.read_rows(path))
    assert str(error.value).startswith(f"{path}{place}: ")
    assert words in str(error.value)


@each_case("line", [b"[1]", b'"text"', b"3", b"null"])
def test_non_object_line_reports_file_and_line(path, line):
    path.write_bytes(line)
    with pytest.raises(DataError, match=r"rows\.jsonl:1: expected a JSON object, found "):
        list(jsonl.read_rows(path))


def test_rows_before_an_invalid_line_are_returned(path):
    path.write_bytes(b'{"a": 1}\n{"a": 2}\nbad\n')
    rows = jsonl.read_rows(path)
    assert [next(rows), next(rows)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_unreadable_file_reports_its_path(tmp_path, name):
    with pytest.raises(DataError) as error:
        list(jsonl.read_rows(tmp_path / name))
    assert str(tmp_path / name) in str(error.value)


def test_line_of_many_megabytes_is_one_row(path):
    text = "x" * 20_000_000
    jsonl.write_rows(path, [{"text": text}, {"text": "y"}])
    assert [len(row["text"]) for row in jsonl.read_rows(path)] == [len(text), 1]


def test_written_rows_round_trip(path):
    rows = [{"n": number, "t": "ü\u2028\n"} for number in range(100)]
    assert jsonl.write_rows(path, iter(rows)) == 100
    assert list(jsonl.read_rows(path)) == rows


def test_keys_that_are_numbers_become_text(path):
    jsonl.write_rows(path, [{"at": {1: "one"}}])
    assert list(jsonl.read_rows(path)) == [{"at": {"1": "one"}}]


def test_pipe_is_not_written(path):
    os.mkfifo(path)
    for write in (lambda: jsonl.write_rows(path, ROWS), lambda: jsonl.Appender(path)):
        with pytest.raises(DataError, match=r"rows\.jsonl: is not a regular file"):
            write()


def test_file_is_written_atomically(path):
    def rows() -> Any:
        yield {"a": "new"}
        raise RuntimeError("half way")

    jsonl.write_rows(path, ROWS)
    with pytest.raises(RuntimeError):
        jsonl.write_rows(path, rows())
    assert list(jsonl.read_rows(path)) == ROWS
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_missing_folders_are_created(tmp_path):
    assert jsonl.write_rows(tmp_path / "a" / "b.jsonl", ROWS) == 2
    with jsonl.Appender(tmp_path / "c" / "d.jsonl") as file:
        file.write(ROWS[0])
    assert list(jsonl.read_rows(tmp_path / "c" / "d.jsonl")) == ROWS[:1]


def test_appended_row_is_readable_before_close(path):
    with jsonl.Appender(path) as file:
        file.write(ROWS[0])
        assert list(jsonl.read_rows(path)) == ROWS[:1]
        file.write(ROWS[1])
        assert list(jsonl.read_rows(path)) == ROWS


def test_appending_keeps_rows(path):
    jsonl.write_rows(path, ROWS)
    with jsonl.Appender(path) as file:
        file.write({"a": 3})
    assert list(jsonl.read_rows(path)) == [*ROWS, {"a": 3}]


def test_closing_twice_is_allowed(path):
    file = jsonl.Appender(path)
    file.write(ROWS[0])
    file.close()
    file.close()
    assert list(jsonl.read_rows(path)) == ROWS[:1]


def test_file_can_be_synced_from_another_thread(path):
    with jsonl.Appender(path) as file, ThreadPoolExecutor() as threads:
        for number in range(200):
            file.write({"number": number})
            synced = threads.submit(file.sync)
        synced.result(timeout=100)
    file.sync()
    assert [row["number"] for row in jsonl.read_rows(path)] == list(range(200))


def test_failed_write_reports_its_path(path):
    # A file size limit replaces a full disk: the system writes a part of the line, then fails.
    script = """
        import resource, signal, sys
        from pathlib import Path
        from nemo_gym import jsonl
        from nemo_gym.errors import DataError

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            with jsonl.Appender(Path(sys.argv[1])) as file:
                for number in range(100):
                    file.write({"number": number, "text": "x" * 1000})
        except DataError as error:
            print(number, error)
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), path], capture_output=True, text=True, timeout=100, check=True
    )
    advice = "Free some disk space, then resume with --resume."
    assert finished.stdout.strip() == f"4 {path}: cannot be written to (File too large). {advice}"
    assert [row["number"] for row in jsonl.read_rows(path)] == [0, 1, 2, 3]


def test_memory_does_not_grow_with_the_file(path):
    jsonl.write_rows(path, ({"n": number, "text": "x" * 1000} for number in range(5_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in jsonl.read_rows(path)) == 5_000
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < path.stat().st_size / 10


@each_case(
    ("value", "written"),
    [
        (2**70, b"1180591620717411303424"),
        ("\ud800 and ü", '"? and ü"'.encode()),
        ({"\udfff": [2**70]}, b'{"?":[1180591620717411303424]}'),
        ((2**70, float("nan"), orjson.Fragment(b"[1, 2]")), b"[1180591620717411303424,null,[1, 2]]"),
    ],
)
def test_values_that_orjson_rejects_are_written(value: Any, written: bytes) -> None:
    assert jsonl.dump_json(value) == written


LONG = 12345678901234567890123


@each_case(
    ("text", "value"),
    [
        (f"{LONG}", LONG),
        (f'{{"a":{LONG}}}', {"a": LONG}),
        (f"[-{LONG}, 18446744073709551616 ,{LONG}\n]", [-LONG, 2**64, LONG]),
        (f'["{LONG}", 0.{LONG}, {LONG}.5]', [f"{LONG}", float(f"0.{LONG}"), LONG + 0.5]),
        ("[9223372036854775808,-9223372036854775809]", [2**63, -(2**63) - 1]),
    ],
)
def test_long_integers_are_not_rounded(path, text, value):
    assert jsonl.loads_exact(text) == jsonl.loads_exact(text.encode()) == loads_opaque(text.encode()) == value
    jsonl.write_rows(path, [{"a": value}])
    assert list(jsonl.read_rows(path)) == [{"a": value}]


def test_lone_surrogate_is_invalid_unicode() -> None:
    jsonl.check_unicode(["\U0001f600", {"é": 1}])
    for value in ("\ud800", {"a": ["\udfff"]}, {"\ud83d": None}):
        with pytest.raises(ValueError, match="surrogates"):
            jsonl.check_unicode(value)


def test_output_with_the_name_of_a_compressed_file_is_rejected():
    kind = TypeAdapter(jsonl.OutputPath)
    for suffix in (".gz", ".zst", ".bz2", ".xz"):
        with pytest.raises(ValidationError, match=r"would not be compressed.*Write x\.jsonl, and compress it after"):
            kind.validate_python(f"out/x.jsonl{suffix}")
    assert kind.validate_python("out/x.jsonl") == Path("out/x.jsonl")
