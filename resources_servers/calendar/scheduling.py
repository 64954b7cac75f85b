"""Find start times that meet all requirements at once."""

from __future__ import annotations

from collections.abc import Sequence

from resources_servers.calendar.requirements import Requirement


def schedule(required: Sequence[Requirement]) -> dict[str, int] | None:
    """Return each event's start time by key, in minutes since midnight, or None if the events do not all fit.

    For a given order, starting each event as early as possible is optimal, so only orders need to be searched.
    """
    return _placed_after(0, list(required))


def clock(minutes: int) -> str:
    """Format minutes since midnight as `HH:MM`."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _placed_after(free_from: int, waiting: list[Requirement]) -> dict[str, int] | None:
    if not waiting:
        return {}
    if any(_end(free_from, each) > each.span.end for each in waiting):
        return None
    # Try the events in order of their deadlines, because the first try then nearly always succeeds.
    for each in sorted(waiting, key=lambda requirement: requirement.span.end):
        rest = _placed_after(_end(free_from, each), [other for other in waiting if other is not each])
        if rest is not None:
            return {each.key: _end(free_from, each) - each.duration, **rest}
    return None


def _end(free_from: int, required: Requirement) -> int:
    return max(free_from, required.span.start) + required.duration
