"""The table of the properties of all environments: complete, and in the words that its page defines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nemo_gym.data import catalog

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "about" / "environment_properties.md"
PROGRAM = "import pathlib; from pages import catalog; print(catalog.properties(pathlib.Path.cwd()))"


def cells_of(text: str) -> list[list[str]]:
    """Return the rows of all tables in a text."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_every_environment_has_defined_properties() -> None:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "docs" / "_ext")}
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True
    ).stdout
    header, _, *rows = cells_of(made)
    assert header[1:4] == ["structure", "capability", "task type"]
    assert {len(row) for row in rows} == {len(header)}

    environments = {each.name for each in catalog.environments(lambda note: None) if each.kind == "environment"}
    assert {row[0].partition("]")[0].strip("[") for row in rows} >= environments

    defined = {row[0] for row in cells_of(PAGE.read_text("utf-8"))}
    assert {value for row in rows for value in row[1:4]} - defined == set()
