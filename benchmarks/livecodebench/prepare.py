"""Fetch problems of LiveCodeBench, and write those of a window of contest dates as rows of code_gen.

python benchmarks/livecodebench/prepare.py --start 2024-08-01 --end 2025-05-01
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import zlib
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym import DataError, UsageError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

ROOT = Path(__file__).parents[2]
OUTPUT = Path(__file__).parent / "data" / "livecodebench.jsonl"
REPOSITORY = "livecodebench/code_generation_lite"
FILES = {1: "test.jsonl"} | {number: f"test{number}.jsonl" for number in range(2, 7)}
"""The file that each version added."""
COLUMNS = dict.fromkeys(
    (
        "question_content", "platform", "question_id", "contest_date", "starter_code", "difficulty",
        "public_test_cases", "private_test_cases", "metadata",
    ),
    str,
)  # fmt: skip
MOST_BYTES = 2**31
"""The largest size of one problem's unpacked tests."""
AS_PROGRAM = (
    "The program reads from standard input and writes to standard output. Answer with the whole program in one fenced "
    "block of Python."
)
AS_METHOD = "Begin with this code. Answer with the whole class in one fenced block of Python:\n\n```python\n{}\n```"
PREAMBLE = """\
import sys
from typing import *
from string import *
from re import *
from random import *
from operator import *
from math import *
from json import *
from itertools import *
from heapq import *
from functools import *
from datetime import *
from copy import *
from collections import *
from bisect import *
from builtins import *
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator
import random, re, string, typing
sys.setrecursionlimit(50_000)
"""
"""Names and a recursion limit that the benchmark's programs may rely on."""


def prepare(
    output: Path = OUTPUT,
    *,
    version_tag: str = "release_v6",
    start: str | None = None,
    end: str | None = None,
    difficulty: Literal["easy", "medium", "hard"] | None = None,
    revision: str = "main",
    skip_bad: bool = False,
) -> Path:
    """Write one row per problem in the window, and the tests of each to a file in `tests/`; return the output path.

    version_tag: release_v6 for all problems up to version 6, v6 for those that it added, v4_v6 for a range
    start: the first date of a contest, as in 2024-08-01
    end: the last date of a contest
    difficulty: only problems of this difficulty
    revision: a commit of the dataset
    """
    first, last = _date_of("start", start) or date.min, _date_of("end", end) or date.max
    names = _files_of(version_tag)
    paths = [
        fetch(HuggingFace(REPOSITORY, name, revision), folder=output.parent / "source" / revision) for name in names
    ]

    def convert(row: TableRow) -> JsonObject | None:
        """Return the row of a problem, or None if it is not in the window."""
        problem, where = row.fields, f"{row.place} ({row.fields['question_id']})"
        is_in_window = first <= _contest_date(problem, where) <= last
        is_wanted = is_in_window and difficulty in (None, problem["difficulty"])
        return _row(problem, where, output.parent / "tests") if is_wanted else None

    def rows() -> Iterator[JsonObject]:
        is_empty = True
        for path in paths:
            for row in convert_table(path, COLUMNS, convert, skip_bad=skip_bad):
                if row is not None:
                    is_empty = False
                    yield row
        if is_empty:
            # Raised before the rows replace the present file.
            raise DataError(
                f"{output}: {version_tag} does not have a problem from {first} to {last}"
                f"{f' with difficulty {difficulty}' if difficulty else ''}. Choose another window."
            )

    write_rows(output, rows())
    return output


def _row(problem: JsonObject, where: str, folder: Path) -> JsonObject:
    try:
        tests = tests_of(problem["public_test_cases"], problem["private_test_cases"], problem["metadata"])
    except UnreadableTests as error:
        raise DataError(f"{where}: {error} The data may have changed since this preparation was written.") from error
    unit_tests: JsonObject = {"file": _written(tests, folder), "preamble": PREAMBLE}
    if tests.function:
        unit_tests["fn_name"] = tests.function
    return {
        "question": problem["question_content"].strip(),
        "answer_format": AS_METHOD.format(problem["starter_code"].rstrip()) if tests.function else AS_PROGRAM,
        "verifier_metadata": {"unit_tests": unit_tests},
        "question_id": problem["question_id"],
        "platform": problem["platform"],
        "contest_date": problem["contest_date"],
        "difficulty": problem["difficulty"],
    }


def _written(tests: Tests, folder: Path) -> str:
    """Write the tests to a file that is named for its content, and return its path for the row."""
    content = json.dumps({"inputs": tests.inputs, "outputs": tests.outputs}).encode()
    path = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.json.gz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        partial.write_bytes(gzip.compress(content, compresslevel=6, mtime=0))
        partial.replace(path)
    resolved = path.resolve()
    return str(resolved.relative_to(ROOT) if resolved.is_relative_to(ROOT) else resolved)


def _files_of(version_tag: str) -> list[str]:
    found = re.fullmatch(r"release_v(?P<up_to>[1-9])|v(?P<first>[1-9])(?:_v(?P<last>[1-9]))?", version_tag)
    if found:
        first = int(found["first"] or 1)
        last = int(found["last"] or found["up_to"] or first)
        if first <= last and last in FILES:
            return [FILES[number] for number in range(first, last + 1)]
    raise UsageError(f"version_tag: '{version_tag}' is not known. Use release_v1 to release_v6, v1 to v6, or v4_v6.")


def _date_of(name: str, given: str | None) -> date | None:
    try:
        return date.fromisoformat(given) if given else None
    except ValueError as error:
        raise UsageError(f"{name}: '{given}' is not a date. Write it like 2024-08-01.") from error


def _contest_date(problem: JsonObject, where: str) -> date:
    try:
        return datetime.fromisoformat(problem["contest_date"]).date()
    except ValueError as error:
        raise DataError(f"{where}: column 'contest_date': '{problem['contest_date']}' is not a date.") from error


class UnreadableTests(ValueError):
    """Tests that do not have the known format; the message names the column."""


class Tests(NamedTuple):
    """The public and then the private tests of a problem. With `function`, its arguments and results are JSON."""

    inputs: list[str]
    outputs: list[str]
    function: str | None


class _Case(BaseModel):
    input: str
    output: str
    testtype: Literal["stdin", "functional"]


class _Metadata(BaseModel):
    func_name: str | None = None


_CASES = TypeAdapter(list[_Case])


def tests_of(public: str, private: str, metadata: str) -> Tests:
    """Parse the columns of a problem. Raise `UnreadableTests` if they do not have the known format."""
    cases = [*_cases(public, "public_test_cases"), *_cases(_unpacked(private), "private_test_cases")]
    try:
        function = _Metadata.model_validate_json(metadata).func_name
    except ValidationError as error:
        raise UnreadableTests(f"column 'metadata': {error.errors(include_url=False)[0]['msg']}.") from error
    expected = "functional" if function else "stdin"
    if not cases or any(case.testtype != expected for case in cases):
        raise UnreadableTests(f"columns 'public_test_cases' and 'private_test_cases': not all tests are '{expected}'.")
    return Tests([case.input for case in cases], [case.output for case in cases], function)


def _cases(written: str, column: str) -> list[_Case]:
    try:
        return _CASES.validate_json(written)
    except ValidationError as error:
        raise UnreadableTests(f"column '{column}': {error.errors(include_url=False)[0]['msg']}.") from error


def _unpacked(packed: str) -> str:
    """Return JSON text, which is either plain, or base64 of zlib of a pickled text."""
    if packed.lstrip().startswith("["):
        return packed
    try:
        inflate = zlib.decompressobj()
        pickled = inflate.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
        if not inflate.eof:
            raise UnreadableTests("column 'private_test_cases': too long, or cut off.")
        text = _TextOnly(io.BytesIO(pickled)).load()
    except UnreadableTests:
        raise
    except (zlib.error, pickle.UnpicklingError, LookupError, TypeError, ValueError, EOFError) as error:
        raise UnreadableTests(f"column 'private_test_cases': {type(error).__name__}: {error}.") from error
    if not isinstance(text, str):
        raise UnreadableTests(f"column 'private_test_cases': holds {type(text).__name__} instead of text.")
    return text


class _TextOnly(pickle.Unpickler):
    """An unpickler that cannot create objects of any class, because a pickle can otherwise run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, but only text is allowed")


if __name__ == "__main__":
    run_prepare(prepare)
