"""Fetch the sanitized problems of MBPP, and write them as rows of code_gen.

python benchmarks/mbpp/prepare.py
"""

from __future__ import annotations

import ast
from pathlib import Path

from nemo_gym import DataError, convert_table, run_prepare
from nemo_gym.data.sources import HuggingFace, fetch
from nemo_gym.data.tables import TableRow
from nemo_gym.jsonl import JsonObject, write_rows

OUTPUT = Path(__file__).parent / "data" / "mbpp.jsonl"
SOURCE = HuggingFace("google-research-datasets/mbpp", "sanitized/test-00000-of-00001.parquet")
COLUMNS = {"task_id": int, "prompt": str, "code": str, "test_imports": list[str], "test_list": list[str]}


def prepare(output: Path = OUTPUT, *, skip_bad: bool = False) -> Path:
    """Write one row per problem, and return the output path."""
    path = fetch(SOURCE, folder=output.parent / "source")
    write_rows(output, convert_table(path, COLUMNS, _row, skip_bad=skip_bad))
    return output


def _row(row: TableRow) -> JsonObject:
    try:
        return row_of(row.fields)
    except (SyntaxError, ValueError) as error:
        raise DataError(
            f"{row.place} (task {row.fields['task_id']}): {error}. The data may have changed since this "
            "preparation was written."
        ) from error


def row_of(problem: JsonObject) -> JsonObject:
    """Return the row of a problem. Raise `ValueError` or `SyntaxError` if its tests do not call one function."""
    tests = "\n".join(problem["test_list"])
    return {
        "question": problem["prompt"].strip(),
        "tests": tests,
        "verifier_metadata": {
            "unit_tests": {
                "fn_name": _tested_function(problem["code"], tests),
                "check": tests,
                "preamble": "\n".join(problem["test_imports"]),
            },
            "reference": problem["code"],
        },
        "task_id": f"mbpp/{problem['task_id']}",
    }


def _tested_function(code: str, tests: str) -> str:
    """Return the function of the reference that the tests call."""
    calls = (node.func for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    names = [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef) and node.name in called]
    if len(set(names)) != 1:
        raise ValueError(f"the tests must call one function of the reference, but they call {names or 'none'}")
    return names[0]


if __name__ == "__main__":
    run_prepare(prepare)
