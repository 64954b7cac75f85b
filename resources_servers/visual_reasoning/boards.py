"""Notice boards with text that is too small to read without zooming in."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from nemo_gym import shared_rows
from resources_servers.visual_reasoning.drawing import INK, WHITE, Canvas, Colour
from resources_servers.visual_reasoning.tasks import Sheet, Task

COLUMNS, ROWS = 5, 2
CARD_WIDTH, CARD_HEIGHT = 220, 130
LETTERS = "ACEFHJKLMNPRTUXY"
DIGITS = "23479"
"""The characters of codes. Similar characters, such as B and 8, D and 0, 6 and 8, or V and U, are left out."""
CORK: Colour = (226, 208, 176)
LONGEST_NAME = 16


@cache
def _names() -> list[str]:
    """Return the names that fit on a card. Names with accents are left out, because Pillow's font lacks accents."""
    names = (f"{row['given_name']} {row['surname']}" for row in shared_rows("names.jsonl"))
    return [name for name in names if name.isascii() and len(name) <= LONGEST_NAME]


@dataclass(frozen=True)
class Card:
    """A note on the board: a name in large letters and a code in small ones."""

    name: str
    code: str
    left: int
    top: int


@dataclass(frozen=True)
class Board(Sheet):
    """A cork board with cards."""

    WIDTH: ClassVar[int] = 1600
    HEIGHT: ClassVar[int] = 800
    FINENESS: ClassVar[int] = 1
    PALETTE: ClassVar[int] = 8

    cards: tuple[Card, ...]

    @property
    def background(self) -> Colour:
        return CORK

    def draw(self, canvas: Canvas) -> None:
        for card in self.cards:
            end = (card.left + CARD_WIDTH, card.top + CARD_HEIGHT)
            canvas.rectangle((card.left, card.top), end, WHITE, INK)
            canvas.text((card.left + CARD_WIDTH / 2, card.top + 44), card.name, 22)
            canvas.text((card.left + CARD_WIDTH / 2, card.top + 96), card.code, 10)


def zoom(rng: random.Random) -> Task:
    """Return a question about the code on one card. The code is hard to read without the tool `zoom`."""
    names = rng.sample(_names(), COLUMNS * ROWS)
    wide, high = Board.WIDTH // COLUMNS, Board.HEIGHT // ROWS
    cards = tuple(
        Card(
            name,
            _code(rng),
            at % COLUMNS * wide + rng.randint(4, wide - CARD_WIDTH - 4),
            at // COLUMNS * high + rng.randint(4, high - CARD_HEIGHT - 4),
        )
        for at, name in enumerate(names)
    )
    card = rng.choice(cards)
    question = (
        f"The picture is {Board.WIDTH} pixels wide and {Board.HEIGHT} pixels high. Which code of six characters is on "
        f"the card of {card.name}, in small print below the name? The tool `zoom` enlarges a part of the picture."
    )
    box = (card.left, card.top, card.left + CARD_WIDTH, card.top + CARD_HEIGHT)
    return replace(Task("zoom", question, (Board(cards),), "text", card.code), box=box)


def _code(rng: random.Random) -> str:
    return "".join(rng.choice(LETTERS) if at % 2 else rng.choice(DIGITS) for at in range(6))
