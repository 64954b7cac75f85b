"""The tests that the pages on frameworks name exist, and the pages name each framework's tests."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = "\n".join(
    (REPOSITORY / "docs" / name).read_text("utf-8") for name in ("training/index.md", "contribute/frameworks.md")
)


def test_named_files_are_those_of_the_frameworks() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert [path for path in sorted(named) if not (REPOSITORY / path).is_file()] == []
    frameworks = {path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("tests/frameworks/test_*.py")}
    assert frameworks <= named


def test_named_tests_exist() -> None:
    files = [REPOSITORY / path for path in re.findall(r"`(tests/[\w/]+\.py)`", PAGE)]
    found = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(file.read_text("utf-8") for file in files), re.M))
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert named
    assert [name for name in named if name not in found] == []
