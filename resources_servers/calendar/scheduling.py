"""Find a time for every event, so that all requirements are kept together."""

from __future__ import annotations

from collections.abc import Sequence

from resources_servers.calendar.requirements import Requirement


def schedule(required: Sequence[Requirement]) -> dict[str, int] | None:
    """The start of each event in minutes since midnight, by its key; None where not all of them fit.

    Once the order is chosen, beginning each event as early as possible is best, so only orders have to be tried.
    """
    return _placed_after(0, list(required))


def clock(minutes: int) -> str:
    """Minutes since midnight as `HH:MM`."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _placed_after(free_from: int, waiting: list[Requirement]) -> dict[str, int] | None:
    if not waiting:
        return {}
    if any(_end(free_from, each) > each.span.end for each in waiting):
        return None
    # What must be over first is tried first: nearly always that order fits.
    for each in sorted(waiting, key=lambda requirement: requirement.span.end):
        rest = _placed_after(_end(free_from, each), [other for other in waiting if other is not each])
        if rest is not None:
            return {each.key: _end(free_from, each) - each.duration, **rest}
    return None


def _end(free_from: int, required: Requirement) -> int:
    return max(free_from, required.span.start) + required.duration
