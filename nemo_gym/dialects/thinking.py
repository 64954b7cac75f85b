"""Reasoning inside a text: `<think>…</think>`, as models write it and chat templates read it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

THINK_BLOCK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class Thought(NamedTuple):
    """A text, and the reasoning that stood in it."""

    reasoning: list[str]
    rest: str


def wrapped_in_think_tags(reasoning: Iterable[str]) -> str:
    """Each paragraph in tags of its own; empty ones are left out."""
    return "".join(f"<think>{text}</think>" for text in reasoning if text)


def split_thinking(text: str) -> Thought:
    """Take the reasoning out of a text; all white space stays, so that wrapping it again gives the same tokens.

    A chat template may write the opening tag itself, so a lone closing tag ends reasoning that began with the text;
    and a model that was cut off while it was thinking leaves a block open.
    """
    blocks = THINK_BLOCK.findall(text)
    rest = THINK_BLOCK.sub("", text)
    before, closing, after = rest.partition("</think>")
    if closing and not blocks:
        blocks, rest = [before], after
    elif rest.lstrip().startswith("<think>"):
        blocks, rest = [*blocks, rest.lstrip().removeprefix("<think>")], ""
    return Thought([block for block in blocks if block.strip()], rest)
