"""Compose the text of a user's message."""

from __future__ import annotations

from collections.abc import Sequence

from resources_servers.multiple_intents.wishes import Kind, Wish
from resources_servers.workplace_assistant.errands import Draw

OPENINGS = ("", "Good morning.", "A few things, please.", "Here is what I need today.", "Hi, I am in a hurry.")
LATER_OPENINGS = ("Thanks.", "Great, thank you.", "Next:", "One more thing.", "Okay.")
CONNECTORS = ("", "", "also, ", "please ")
CHAIN_CONNECTORS = ("after that, ", "once that is done, ", "then ")

WITHDRAWN_AT_ONCE: dict[Kind, str] = {
    "add": "On second thought, I do not need {about}.",
    "change": "On second thought, do not change anything about {about}.",
    "cancel": "On second thought, keep {about}.",
}
WITHDRAWN_LATER: dict[Kind, str] = {
    "add": "I have changed my mind about {about}. Please remove it again.",
    "change": "I have changed my mind about {about}. Please undo that change.",
}


def sentence(order: str) -> str:
    """Return an order as a sentence. An order that ends with a quoted sentence gets no second full stop."""
    text = order[0].upper() + order[1:]
    return text if text.endswith((".'", "?'")) else f"{text}."


def paragraph(draw: Draw, orders: Sequence[str]) -> str:
    """Return the orders of a block as sentences, with connectors such as "then" between them."""
    first, *rest = orders
    return " ".join([sentence(first), *(sentence(draw.one(CHAIN_CONNECTORS) + order) for order in rest)])


def message(draw: Draw, blocks: Sequence[Sequence[str]], *, after: Sequence[str] = (), is_first: bool = True) -> str:
    """Return a message with the orders of each block, as text or as a list. It ends with the sentences in `after`."""
    opening = draw.one(OPENINGS if is_first else LATER_OPENINGS)
    if len(blocks) > 1 and draw.random.random() < 1 / 3:
        return "\n".join([*filter(None, [opening]), *(f"- {paragraph(draw, orders)}" for orders in blocks), *after])
    connected = [[connector + orders[0], *orders[1:]] for connector, orders in _connected(draw, blocks)]
    return " ".join([*filter(None, [opening]), *(paragraph(draw, orders) for orders in connected), *after])


def withdrawn_at_once(wish: Wish) -> str:
    return WITHDRAWN_AT_ONCE[wish.kind].format(about=wish.about)


def withdrawn_later(wish: Wish) -> str:
    return WITHDRAWN_LATER[wish.kind].format(about=wish.about)


def _connected(draw: Draw, blocks: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    return [(draw.one(CONNECTORS) if place else "", orders) for place, orders in enumerate(blocks)]
