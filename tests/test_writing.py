"""The words of docstrings, comments, messages and pages: plain English, one term per concept."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parent.parent
CODE = ("nemo_gym", "resources_servers", "responses_api_agents", "responses_api_models", "bench", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "examples/README.md", "*/*/README.md")
AVOIDED = {
    "name the exact verb (return, raise, report, print, send)": r"\b(told|tells?|telling)\b",
    "name the thing": r"\b(whatever it|whoever|whichever|nobody|somebody)\b",
    "use the ordinary word": r"\b(anew|mends?|mended|beside|in vain|at one go|let go|stands?|standing|stood)\b",
}
WORDS_OF_A_MESSAGE = 4
"""Shorter strings are keys and names, not sentences."""
QUOTED = re.compile(r"```.*?```|`[^`]*`|'[^']*'|\"[^\"]*\"", re.DOTALL)
"""Code and quotations, which keep the words of others."""


class Place(NamedTuple):
    path: Path
    line: int
    text: str


def is_sentence(value: object) -> bool:
    return isinstance(value, str) and len(value.split()) >= WORDS_OF_A_MESSAGE


def prose_of_code(path: Path, *, messages: bool) -> Iterator[Place]:
    """Yield the docstrings and comments of a Python file, and its messages too."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Place(path, node.lineno, node.value.value)
        elif messages and isinstance(node, ast.Constant) and is_sentence(node.value):
            yield Place(path, node.lineno, str(node.value))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Place(path, token.start[0], token.string)


def prose() -> Iterator[Place]:
    """Yield all prose of the project."""
    for folder in CODE:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if "tests" not in path.parts and "blackjack" not in path.parts:
                # The strings of environments are their tasks: what models and users say.
                yield from prose_of_code(path, messages=folder not in ("resources_servers", "responses_api_agents"))
    for pattern in PAGES:
        for path in sorted(REPOSITORY.glob(pattern)):
            text = QUOTED.sub("", path.read_text("utf-8"))
            yield from (Place(path, number, line) for number, line in enumerate(text.splitlines(), start=1))


def test_prose_uses_plain_words() -> None:
    hits = [
        f"{place.path.relative_to(REPOSITORY)}:{place.line}: {advice}: …{found.group(0)}… in {place.text[:100]!r}"
        for place in prose()
        for advice, pattern in AVOIDED.items()
        if (found := re.search(pattern, QUOTED.sub("", place.text), re.IGNORECASE))
    ]
    assert hits == [], "\n" + "\n".join(hits)
