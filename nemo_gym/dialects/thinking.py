"""Read and write reasoning in a text: `<think>…</think>`, as models and chat templates use it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

THINK_BLOCK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class Thought(NamedTuple):
    """The reasoning in a text, and the rest of the text."""

    reasoning: list[str]
    rest: str


def wrapped_in_think_tags(reasoning: Iterable[str]) -> str:
    """Return the paragraphs, each in its own `<think>` tags. Leave out empty paragraphs."""
    return "".join(f"<think>{text}</think>" for text in reasoning if text)


def split_thinking(text: str) -> Thought:
    """Separate the reasoning from the rest of a text.

    Keep white space, so that wrapping the reasoning again gives the same tokens.
    Text before a lone closing tag is reasoning, because a chat template may have written the opening tag.
    An unclosed block extends to the end, because the model may have been cut off while thinking.
    """
    before, closing, after = text.partition("</think>")
    is_open = closing and "<think>" not in before
    begun, text = ([before], after) if is_open else ([], text)
    blocks = [*begun, *THINK_BLOCK.findall(text)]
    rest = THINK_BLOCK.sub("", text)
    if rest.lstrip().startswith("<think>"):
        blocks, rest = [*blocks, rest.lstrip().removeprefix("<think>")], ""
    return Thought([block for block in blocks if block.strip()], rest)
