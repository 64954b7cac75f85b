"""The numbers of ended and running rollouts in the course of a session, as a limited number of points."""

from __future__ import annotations

from typing import NamedTuple

MOST_POINTS = 300


class Point(NamedTuple):
    """The progress at one time."""

    at_s: float
    """Seconds after the first rollout started."""
    finished: int
    """Rollouts with an outcome, including those of earlier sessions."""
    running: int


class Timeline:
    """The progress of a session. When it is full, it drops every second point and accepts new ones half as often."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.points: list[Point] = []
        self._most = most
        self._every_s = 0.0

    def add(self, point: Point) -> None:
        """Add a point, unless the last one is too recent."""
        if self.points and point.at_s - self.points[-1].at_s < self._every_s:
            return
        self.points.append(point)
        if len(self.points) > self._most:
            del self.points[1::2]
            first, last = self.points[0], self.points[-1]
            self._every_s = (last.at_s - first.at_s) / (len(self.points) - 1)

    def end(self, point: Point) -> None:
        """Add the last point, even if the previous one is recent."""
        self.points.append(point)
