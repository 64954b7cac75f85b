"""Overlays: blocks that only change a server that another file defines. Runs without that file ignore them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nemo_gym.config.models import Origin, ServerConfig
from nemo_gym.config.overrides import is_typed
from nemo_gym.config.suggestions import CERTAINLY_MEANT, closest
from nemo_gym.config.tree import Node


class Overlay(NamedTuple):
    """A block that still has no entrypoint after all files are merged, because no file defines its server."""

    name: str
    tier: str
    origin: Origin


def is_overlay(block: Node, tier: str) -> bool:
    """Return whether a block has no entrypoint, not even at a wrong level or misspelt.

    A block from the command line is never an overlay. If it changes a server that is missing, the user made a mistake.
    """
    held = block.mapping[tier]
    levels = (block, held, *held.mapping.values())
    if any(is_typed(level.origin) or not isinstance(level.value, dict | None) for level in levels):
        return False
    return not any(closest("entrypoint", map(str, level.mapping), CERTAINLY_MEANT) for level in levels)


def notes_of_overlays(overlays: Sequence[Overlay], servers: Iterable[ServerConfig]) -> list[str]:
    """Return a note for each overlay whose name is probably a misspelt server name."""
    tiers = {server.name: server.type for server in servers}
    notes = []
    for overlay in overlays:
        names = [name for name, tier in tiers.items() if tier == overlay.tier]
        if guess := closest(overlay.name, names, CERTAINLY_MEANT):
            notes.append(
                f"{overlay.origin}: {overlay.name} is ignored, because it has no entrypoint and no file defines the "
                f"server that it changes. Did you mean '{guess}'?"
            )
    return notes
