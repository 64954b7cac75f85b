"""Compare the output of a command with the lines that a page shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import unified_diff

ANY = "…"
NUMBER = re.compile(r"[-−+]?\d+(?:[.,:]\d+)*")
RUN = re.compile(r"([ ─━-])\1+")
"""Spaces and rules between columns, whose length depends on the numbers."""


def matches(shown: Sequence[str], printed: str, *, numbers_differ: bool, is_begin: bool = False) -> bool:
    """Return whether an output is as shown, or begins as shown."""
    text = "".join(f"{_plain(line, numbers_differ)}\n" for line in printed.strip("\n").splitlines())
    pattern = "".join(_pattern(_plain(line, numbers_differ)) for line in shown)
    return bool((re.match if is_begin else re.fullmatch)(pattern, text))


def difference(shown: Sequence[str], printed: str) -> str:
    """Return the difference between the shown and the printed lines."""
    lines = unified_diff(shown, printed.strip("\n").splitlines(), "shown", "printed", lineterm="", n=1)
    return "\n".join(lines)


def _plain(line: str, numbers_differ: bool) -> str:
    line = line.rstrip()
    return RUN.sub(r"\1", NUMBER.sub("0", line)) if numbers_differ else line


def _pattern(line: str) -> str:
    if line.strip() == ANY:
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*?".join(map(re.escape, line.split(ANY))) + r"\n"
