"""Split a block into commands, each with the output that the page shows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import Block, Page

PROMPT = "$ "


@dataclass(frozen=True)
class Shown:
    """A command of a page."""

    line: int
    text: str
    output: list[str]
    """The lines that the page shows; empty if it shows none."""
    numbers_differ: bool = False
    exit_code: int = 0

    @property
    def is_background(self) -> bool:
        return self.text.rstrip().endswith("&")


def commands_of(page: Page, block: Block) -> list[Shown]:
    """Return the commands of a console or bash block. Raise `PageError` if it has another shape."""
    numbered = list(enumerate(block.text.splitlines(), start=block.line))
    found = [*(_of_console if block.language == "console" else _of_bash)(page, numbered)]
    if not found:
        raise page.error(block.line, "a block of commands without a command.")
    *others, last = ((line, text, output) for line, text, output in found)
    made = [Shown(*each, block.numbers_differ) for each in others]
    made.append(Shown(*last, block.numbers_differ, block.exit_code))
    for each in made:
        if each.is_background and not each.output:
            raise page.error(each.line, "a command in the background must show the output to wait for.")
    return made


Found = tuple[int, str, list[str]]


def _of_console(page: Page, lines: list[tuple[int, str]]) -> Iterator[Found]:
    if lines and not lines[0][1].startswith(PROMPT):
        raise page.error(lines[0][0], "a console block begins with '$ ' and a command.")
    starts = [number for number, (_, text) in enumerate(lines) if text.startswith(PROMPT)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        texts = [text for _, text in lines[start:end]]
        words = 1
        while texts[words - 1].endswith("\\") and words < len(texts):
            words += 1
        output = "\n".join(texts[words:]).strip("\n")
        yield lines[start][0], "\n".join(texts[:words]).removeprefix(PROMPT), output.splitlines()


def _of_bash(page: Page, lines: list[tuple[int, str]]) -> Iterator[Found]:
    first, texts = 0, list[str]()
    for number, text in lines:
        if not texts and (not text.strip() or text.lstrip().startswith("#")):
            continue
        first = first if texts else number
        texts.append(text)
        if is_complete("\n".join(texts)):
            yield first, "\n".join(texts), []
            texts = []
    if texts:
        raise page.error(first, "bash cannot parse this command.")


def is_complete(command: str) -> bool:
    """Return whether bash can parse a text, so that a loop or a here-document is one command."""
    if command.endswith("\\"):
        return False
    checked = subprocess.run(["bash", "-n"], input=f"{command}\n", capture_output=True, text=True, check=False)
    return checked.returncode == 0 and not checked.stderr
