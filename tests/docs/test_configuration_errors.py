"""The page of configuration errors explains every message of the configuration reader, and no others."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY / "docs" / "_ext"))

from pages.messages import Entry, Message, entries, messages  # noqa: E402 - the extensions of the site are no package


@cache
def all_messages() -> list[Message]:
    return messages(REPOSITORY / "nemo_gym")


def message_of(entry: Entry) -> Message | None:
    """Return the message of the code that an entry explains: of those in its text, the one with most fixed words."""
    return max(
        (each for each in all_messages() if each.is_in(entry.message)), key=lambda each: each.fixed, default=None
    )


def test_every_message_has_one_entry() -> None:
    found = Counter(message_of(entry) for entry in entries(REPOSITORY))
    assert [message for message in all_messages() if found[message] != 1] == []


def test_every_entry_has_a_message_in_the_code() -> None:
    explained = entries(REPOSITORY)
    assert [entry.id for entry in explained if message_of(entry) is None] == []
    assert len({entry.id for entry in explained}) == len(explained)
