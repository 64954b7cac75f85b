"""The progress of a session in a bounded number of points."""

from __future__ import annotations

from itertools import pairwise

from nemo_gym.rollouts.timeline import Point, Timeline


def points_of(seconds: int, most: int) -> list[Point]:
    timeline = Timeline(most)
    for second in range(seconds):
        timeline.add(Point(float(second), 10 * second, 3))
    timeline.end(Point(seconds - 0.5, 10 * seconds, 0))
    return timeline.points


def test_few_points_are_all_kept():
    points = points_of(20, most=300)
    assert [point.at_s for point in points] == [*map(float, range(20)), 19.5]


def test_long_sessions_keep_evenly_spaced_points():
    points = points_of(10_000, most=100)
    assert len(points) <= 101
    assert (points[0].at_s, points[-1]) == (0.0, Point(9999.5, 100_000, 0))
    gaps = [after.at_s - before.at_s for before, after in pairwise(points[:-1])]
    assert max(gaps) <= 2 * min(gaps)
    assert max(gaps) < 300
