"""Pieces of MyST Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; line breaks and bars in its cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: object) -> str:
    """Return text as inline code; nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def directive(name: str, argument: str, body: str, options: Iterable[tuple[str, str]] = (), *, colons: int = 3) -> str:
    """Return a directive. One that contains others needs more colons than they have."""
    fence = ":" * colons
    lines = [f"{fence}{{{name}}} {argument}", *(f":{key}: {value}" for key, value in options)]
    return "\n".join([*lines, "", body.strip(), fence, ""])


def prose(text: str) -> str:
    """Return a text in which `<name>` is shown as written, and not read as HTML."""
    return re.sub(r"(`[^`]*`)|<(?=\w)", lambda found: found[1] or r"\<", text)


def toctree(names: Iterable[str]) -> str:
    """Return a hidden table of contents: it adds pages to the side bar only."""
    return "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])


def title_of(page: str) -> str:
    """Return the text of a page's first heading."""
    found = re.search(r"^# +(.+)$", page, re.MULTILINE)
    return found[1].strip() if found else ""


def summary_of(page: str) -> str:
    """Return the first sentence below a page's title, without links."""
    paragraphs = re.split(r"\n\s*\n", page[page.find("\n# ") + 1 :])[1:]
    prose = (" ".join(text.split()) for text in paragraphs if not re.match(r"\s*([#|!<-]|:::|```|    )", text))
    sentence = re.split(r"(?<=[.:]) (?=[A-Z])", next(prose, ""), maxsplit=1)[0]
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
