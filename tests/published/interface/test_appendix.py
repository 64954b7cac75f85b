"""Every name that published folders import has its shape and a test of its behaviour."""

from __future__ import annotations

import ast
import asyncio
import re
import types
from functools import cache
from pathlib import Path

import pytest

from tests.each_case import each_case
from tests.published.interface.names import ROWS
from tests.published.interface.shapes import NOTHING_IN_PARTICULAR

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
APPENDIX = ROOT.parent / "shared" / "published_api.md"


@each_case("row", ROWS)
def test_a_name_has_its_published_shape(row):
    for check in row.shape:
        check(row.thing)


@cache
def functions_of(file: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, functions)}


@each_case("row", ROWS)
def test_each_name_has_a_behaviour_test(row):
    if row.shown_by == NOTHING_IN_PARTICULAR:
        assert row.shape
        return
    path, _, test = row.shown_by.rpartition("::")
    files = [ROOT / path] if path else HERE.glob("test_*.py")
    assert any(test in functions_of(file) for file in files)


def test_all_rows_of_the_appendix_are_covered():
    if not APPENDIX.is_file():
        pytest.skip(f"{APPENDIX} is not here")
    _, _, appendix = APPENDIX.read_text("utf-8").partition("## Appendix A")
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \| `([^`]+)` \|", appendix, re.MULTILINE)
    assert [(int(number), module, name) for number, module, name in rows] == [
        (row.number, f".{row.module}" if row.module else "nemo_gym", row.name) for row in ROWS
    ]


def test_modules_can_be_imported_in_any_order():
    async def imported() -> list[types.ModuleType]:
        return [row.home for row in reversed(ROWS)]

    assert len(asyncio.run(imported())) == len(ROWS)
