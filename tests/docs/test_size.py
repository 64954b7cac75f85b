"""The documentation stays small enough to be read."""

from __future__ import annotations

import re
import sys

import pytest

from tests.docs.pages import REPOSITORY

PAGES_AT_MOST = 64
WORDS_AT_MOST = 62_560
"""Raise a limit only with a reason: a fact that users look for and that replaces no other."""
MADE_FROM_CODE = re.compile(r"<!-- made from the code")


def test_pages_and_words_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [path.read_text("utf-8") for path in (REPOSITORY / "docs").rglob("*.md") if "_build" not in path.parts]
    written = [text for text in texts if not MADE_FROM_CODE.search(text)]
    words = sum(len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) for text in written)
    with capsys.disabled():
        sys.stdout.write(f"\ndocumentation: {len(written)} pages, {words} words without code\n")
    assert len(written) <= PAGES_AT_MOST
    assert words <= WORDS_AT_MOST
