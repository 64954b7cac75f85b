"""Parse a page of the documentation into blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

REPOSITORY = Path(__file__).parents[2]
COMMANDS = ("bash", "console")
SHOWN_ONLY = ("diff", "html", "markdown", "mermaid", "text")
LANGUAGES = (*COMMANDS, *SHOWN_ONLY, "json", "jsonl", "python", "toml", "yaml")
NEEDS = ("clone", "endpoint", "gpu", "hub", "ray")
"""The values of `needs` in a page's front matter. Pages that need `gpu`, `hub` or a missing `ray` are checked, but not
run."""
COMMENT = re.compile(r"<!--\s*(not run|hidden):\s*(.*?)\s*-->\s*", re.DOTALL)
FRONT_MATTER = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)


class PageError(Exception):
    """A page that breaks a rule. The message names its file and line."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    """The line of its first line of text."""
    language: str
    words: tuple[str, ...]
    """The words after the language: `file=PATH`, `numbers-differ`, `exits-N`."""
    text: str
    not_run: str = ""
    """The reason why it is checked, but not run."""

    @cached_property
    def file(self) -> str:
        """The path to which the block is written, or an empty text."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), "")

    @cached_property
    def exit_code(self) -> int:
        """The exit code of its last command."""
        return next((int(word.removeprefix("exits-")) for word in self.words if word.startswith("exits-")), 0)

    @property
    def numbers_differ(self) -> bool:
        return "numbers-differ" in self.words


@dataclass(frozen=True)
class Page:
    """A parsed page."""

    path: Path
    needs: frozenset[str]
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(REPOSITORY)) if self.path.is_relative_to(REPOSITORY) else self.path.name

    def error(self, line: int, problem: str) -> PageError:
        return PageError(f"{self.name}:{line}: {problem}")


def all_pages() -> list[Path]:
    """Return the README and the pages of the site, without generated ones."""
    pages = [path for path in (REPOSITORY / "docs").rglob("*.md") if not is_generated(path)]
    return [REPOSITORY / "README.md", *sorted(pages)]


def is_generated(path: Path) -> bool:
    return any(part.startswith("_") or part == "generated" for part in path.relative_to(REPOSITORY).parts)


def read_page(path: Path) -> Page:
    """Parse a page. Raise `PageError` if it breaks a rule of docs/contribute/set_up.md."""
    text = path.read_text("utf-8")
    front = FRONT_MATTER.match(text)
    page = Page(path, _needs(path, front.group(1) if front else ""))
    begin = front.group(0).count("\n") if front else 0
    page.blocks.extend(_blocks(page, text[front.end() :] if front else text, begin))
    for block in page.blocks:
        _check(page, block)
    return page


def _needs(path: Path, front_matter: str) -> frozenset[str]:
    if path == REPOSITORY / "README.md":
        # A front matter would be visible at the top of the repository's and the package's page.
        return frozenset({"clone"})
    given = (yaml.safe_load(front_matter) or {}).get("needs", [])
    needs = frozenset([given] if isinstance(given, str) else given)
    if unknown := needs - {*NEEDS}:
        raise PageError(f"{path.name}:1: needs: {', '.join(unknown)} is unknown. Known: {', '.join(NEEDS)}.")
    return needs


def _blocks(page: Page, text: str, begin: int) -> Iterator[Block]:
    """Yield the fenced blocks of a text that begins after line `begin` of the page."""
    above, not_run = "", ""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None:
            continue
        line = begin + token.map[0] + 1
        if token.type == "code_block":
            raise page.error(line, "indented block. Put it between ``` and name its language.")
        if token.type == "html_block" and (comment := COMMENT.fullmatch(token.content)):
            kind, words = comment.groups()
            if kind == "not run":
                not_run = " ".join(words.split())
            else:
                inner = token.content[: token.content.rindex("-->")]
                yield from _blocks(page, inner.replace("<!--", "", 1), line - 1)
        elif token.type == "fence" and token.info.startswith("{"):
            # A directive, such as a tab, whose content is Markdown again.
            if token.info.startswith(("{code", "{sourcecode")):
                raise page.error(line, f"{token.info}: use ``` and the language, which every reader highlights.")
            yield from _blocks(page, token.content, line)
        elif token.type == "fence":
            yield _block(page, token, line, above, not_run)
            not_run = ""
        elif token.type == "inline":
            if not_run:
                raise page.error(line, "a comment 'not run' must be directly above a block.")
            above = token.content


def _block(page: Page, token: Token, line: int, above: str, not_run: str) -> Block:
    language, *words = token.info.split() or [""]
    block = Block(line + 1, language, tuple(words), token.content, not_run)
    if block.file and not _names(above, PurePosixPath(block.file)):
        raise page.error(line, f"the text above the block does not name its file, {block.file}.")
    return block


def _names(text: str, path: PurePosixPath) -> bool:
    """Return whether a text names a path, or the end of it."""
    return any("/".join(path.parts[start:]) in text for start in range(len(path.parts)))


def _check(page: Page, block: Block) -> None:
    if block.language not in LANGUAGES:
        raise page.error(block.line - 1, f"language '{block.language}'. Known: {', '.join(sorted(LANGUAGES))}.")
    for word in block.words:
        if not re.fullmatch(r"file=\S+|numbers-differ|exits-\d+", word):
            raise page.error(block.line - 1, f"'{word}' is unknown. Known: file=PATH, numbers-differ, exits-N.")
    if block.file and not PurePosixPath(block.file).parts[0].strip("."):
        raise page.error(block.line - 1, f"{block.file}: a file of a page must be in its folder.")
