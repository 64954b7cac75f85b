"""Read the tests of a row, which are in the row itself or in a file that the row names."""

from __future__ import annotations

import ast
import gzip
import json
import re
import textwrap
import threading
import zlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import find_path
from nemo_gym.grading import CodeTests

_PARSING = threading.Lock()


class UnitTests(BaseModel):
    """The tests of a program: pairs of input and output, or code with assertions about a function (`check`)."""

    model_config = ConfigDict(extra="allow")

    inputs: list[str] = []
    outputs: list[str] = []
    fn_name: str | None = None
    check: str | None = None
    preamble: str = ""
    file: str | None = None
    """A gzipped JSON object with `inputs` and `outputs`, for tests that are too long for a row."""


class UnusableTests(ValueError):
    """An error for tests that no program can pass. Its message says why and what to do."""


def code_tests(given: UnitTests) -> CodeTests:
    """Return the tests in the form that the grader runs. Raise `UnusableTests` if they are incomplete or invalid."""
    tests = given if given.file is None else _of_file(given, given.file)
    if tests.check is not None and tests.fn_name is None:
        raise UnusableTests("fn_name is missing. Set it to the function that 'check' calls.")
    if tests.check is None and len(tests.inputs) != len(tests.outputs):
        raise UnusableTests(
            f"the tests have {len(tests.inputs)} inputs and {len(tests.outputs)} outputs. Each test needs one of each."
        )
    if tests.check is None and not tests.inputs:
        raise UnusableTests("the tests are missing. Add at least one.")
    if problem := _unreadable_code(tests) or _invalid_json(tests):
        raise UnusableTests(f"{problem}. Fix the tests, because no program can pass them.")
    return CodeTests(tests.inputs, tests.outputs, tests.fn_name, tests.check, tests.preamble)


def whole_program(code: str, tests: CodeTests) -> str:
    """Return the code. If it is only a function's body, put the preamble with the function's signature before it."""
    if tests.check is None or tests.function is None or _defines(tests.function).search(code):
        return code
    statements = _parsed(tests.preamble).body
    if not statements or not isinstance(head := statements[-1], ast.FunctionDef) or head.name != tests.function:
        return code
    indent = " " * head.body[-1].col_offset
    return f"{tests.preamble.rstrip()}\n{textwrap.indent(code, indent)}\n"


def _defines(name: str) -> re.Pattern[str]:
    # Use a regex, because parsing code from a model can exhaust the stack of this process.
    word = re.escape(name)
    return re.compile(
        rf"^(?:[ \t]*(?:async[ \t]+)?def[ \t]+{word}\b|{word}[ \t]*[:=]|(?:from|import)\b.*\b{word}\b)", re.MULTILINE
    )


def _of_file(given: UnitTests, name: str) -> UnitTests:
    found = find_path(name, Path.is_file)
    if found is None:
        raise UnusableTests(f"file: '{name}' not found. Create it with the script that made the row.")
    try:
        with gzip.open(found) as file:
            content = UnitTests.model_validate_json(file.read())
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        raise UnusableTests(
            f"file: {found}: not a gzipped JSON object with inputs and outputs ({type(error).__name__}). "
            "Create it again with the script that made the row."
        ) from error
    return given.model_copy(update={"inputs": content.inputs, "outputs": content.outputs})


def _parsed(code: str) -> ast.Module:
    # Use a lock, because parsing in two threads fails in some Python versions with "recursion depth mismatch".
    with _PARSING:
        return ast.parse(code)


def _unreadable_code(given: UnitTests) -> str | None:
    for key, code in (("preamble", given.preamble), ("check", given.check or "")):
        try:
            _parsed(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{key} is not Python: {error}"
    return None


def _invalid_json(given: UnitTests) -> str | None:
    """Describe the first argument or result in function tests that is not JSON. Return None if all are JSON."""
    if given.fn_name is None or given.check is not None:
        return None
    for number, (arguments, result) in enumerate(zip(given.inputs, given.outputs, strict=True)):
        lines = [line for line in arguments.split("\n") if line.strip()]
        for key, text in [*(("inputs", line) for line in lines), ("outputs", result)]:
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                return f"{key}[{number}] is not JSON: {error}"
    return None
