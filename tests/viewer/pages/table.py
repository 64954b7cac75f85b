"""The table of rollouts, as a test reads it from the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

KEYS = """() => [...document.querySelectorAll(".grid-rows [role=row]")]
    .sort((one, two) => one.ariaRowIndex - two.ariaRowIndex)
    .map((row) => row.querySelector("a")?.hash ?? "")
    .map((hash) => /rollout\\/(\\d+)\\/(\\d+)/.exec(hash)?.slice(1).map(Number) ?? null)"""


def count_of(page: Page) -> Locator:
    """Return the line that says how many rollouts the filter selects."""
    return page.locator(".rollouts-head [role=status]").first


def counted(number: int) -> str:
    """Return the text of that line."""
    return "1 rollout" if number == 1 else f"{number:,} rollouts"


def shown(page: Page) -> list[tuple[int, int]]:
    """Return the tasks and repeats of the rows in sight, from the top, once all of them are loaded."""
    # Read and check in one step, because the page may draw other rows between two.
    loaded = page.wait_for_function(
        f"() => {{ const keys = ({KEYS})(); return keys.every((key) => key !== null) && keys; }}"
    )
    return [(task, repeat) for task, repeat in loaded.json_value()]


def selected(page: Page) -> Locator:
    """Return the row that the keys act on."""
    return page.locator("[role=row][aria-selected=true]")
