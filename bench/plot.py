"""Plot the results of `bench rollouts`: rollouts per second and CPU per rollout by the number in flight.

    python -m bench rollouts --replicas 1 2 | python -m bench plot [--output bench/rollouts.svg]
    python -m bench plot results.txt more_results.txt

All lines but the JSON lines are ignored. Needs matplotlib, which is in the extra `bench`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTPUT = Path(__file__).with_name("rollouts.svg")
COLOURS = ("#1f6feb", "#d9480f", "#2b8a3e", "#862e9c", "#5c5f66")
TARGET_MS = 1.5
OTHER = "#868e96"


class Series(NamedTuple):
    """One line of the plot."""

    replicas: int
    delay_s: float

    def __str__(self) -> str:
        delay = f"takes {self.delay_s:g} s" if self.delay_s else "answers at once"
        return f"replicas {self.replicas}, endpoint {delay}"


def cases_of(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the cases of all JSON lines."""
    found: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith("{"):
            result = json.loads(line)
            found += result["cases"] if result.get("bench") == "rollouts" else []
    return found


def series_of(cases: Iterable[dict[str, Any]]) -> dict[Series, list[dict[str, Any]]]:
    """Group the cases by series and sort them by the number in flight; later duplicates win."""
    points: dict[Series, dict[int, dict[str, Any]]] = defaultdict(dict)
    for case in cases:
        points[Series(case.get("replicas", 1), case["delay_s"])][case["in_flight"]] = case
    return {series: [each[at] for at in sorted(each)] for series, each in sorted(points.items())}


def draw(series: dict[Series, list[dict[str, Any]]], output: Path) -> None:
    """Draw the plot and write it to a file."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise SystemExit("the plot needs matplotlib: pip install 'nemo-gym[bench]'") from None

    counts = list(dict.fromkeys(each.replicas for each in series))
    colours = {replicas: COLOURS[at % len(COLOURS)] for at, replicas in enumerate(counts)}
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    speed, cost = figure.subplots(1, 2)
    for each, cases in series.items():
        style: dict[str, Any] = {"color": colours[each.replicas], "marker": "o", "markersize": 4,
                                 "linestyle": "--" if each.delay_s else "-", "label": str(each)}  # fmt: skip
        speed.plot([case["in_flight"] for case in cases], [case["rollouts_per_s"] for case in cases], **style)
        known = [case for case in cases if case["cpu_ms"] is not None]
        cost.plot([case["in_flight"] for case in known], [case["cpu_ms"] for case in known], **style)
    _draw_ideal(speed, series)
    cost.axhline(TARGET_MS, color=OTHER, linewidth=1, alpha=0.5, linestyle=":")
    cost.annotate(f"target\n{TARGET_MS:g} ms", (1.0, TARGET_MS), xycoords=("axes fraction", "data"), va="center",
                  color=OTHER, fontsize=8, xytext=(4, 0), textcoords="offset points")  # fmt: skip
    _finish(speed, "rollouts per second", series)
    _finish(cost, "CPU per rollout, ms (all our processes)", series)
    figure.legend(*cost.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.savefig(output, dpi=130)


def _draw_ideal(axes: Axes, series: dict[Series, list[dict[str, Any]]]) -> None:
    """Draw the throughput that the endpoint's delay alone would allow, within the measured range."""
    top = max(case["rollouts_per_s"] for cases in series.values() for case in cases)
    ideals = {(each.delay_s, case["in_flight"]): case["ideal_per_s"] for each, cases in series.items()
              for case in cases if case.get("ideal_per_s")}  # fmt: skip
    for delay_s in sorted({delay_s for delay_s, _ in ideals}):
        points = sorted((at, ideal) for (delay, at), ideal in ideals.items() if delay == delay_s)
        axes.plot(*zip(*points, strict=True), color=OTHER, linewidth=1, linestyle=":")
        seen = [point for point in points if point[1] <= top]
        if seen:
            axes.annotate(f"ideal at {delay_s:g} s", seen[-1], fontsize=8, color=OTHER, ha="right", va="bottom",
                          xytext=(-4, 2), textcoords="offset points")  # fmt: skip
    axes.set_ylim(0, top * 1.15)


def _finish(axes: Axes, title: str, series: dict[Series, list[dict[str, Any]]]) -> None:
    levels = sorted({case["in_flight"] for cases in series.values() for case in cases})
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [f"{level:,}" for level in levels])
    axes.minorticks_off()
    axes.set_xlabel("rollouts in flight")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def main(words: Sequence[str]) -> int:
    """Read the results and draw them."""
    parser = argparse.ArgumentParser(
        prog="python -m bench plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="output of `bench rollouts`; by default standard input")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the suffix (.svg, .png) selects the format")
    options = parser.parse_args(words)
    lines = [line for path in options.files for line in path.read_text("utf-8").splitlines()]
    series = series_of(cases_of(lines if options.files else sys.stdin))
    if not series:
        print("the input does not contain a JSON line of `bench rollouts`. Pass its complete output", file=sys.stderr)
        return 1
    draw(series, options.output)
    points = sum(len(cases) for cases in series.values())
    print(f"{options.output}: {len(series)} lines, {points} points")
    print(json.dumps({"bench": "plot", "output": str(options.output), "lines": len(series), "points": points}))
    return 0
