"""The glossary is sorted, and the other pages use its terms."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
GLOSSARY = DOCS / "reference" / "glossary.md"


def terms() -> list[str]:
    block = re.search(r"```\{glossary\}\n(.*?)```", GLOSSARY.read_text("utf-8"), re.DOTALL)
    assert block is not None
    return re.findall(r"^(\S.*)$", block[1], re.MULTILINE)


def test_terms_are_in_alphabetical_order() -> None:
    assert terms() == sorted(terms(), key=str.lower)


def test_other_pages_use_each_term() -> None:
    pages = [path for path in DOCS.rglob("*.md") if path != GLOSSARY and path.relative_to(DOCS).parts[0][0] != "_"]
    words = " ".join(" ".join(path.read_text("utf-8") for path in pages).lower().split())
    assert [term for term in terms() if term.lower() not in words] == []
