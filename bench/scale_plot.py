"""Draw the results of `bench scale`: rollouts per second, and the share of each resource that is in use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.scale_constants import Constants
from bench.scale_result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f6feb", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#0b7285", "#5c5f66")
GREY = "#868e96"
LEAST_SHARE = 0.02
"""Resources that are never used more than this are not drawn."""
PER_NODE = 100
"""Rollouts in flight per node in the second drawing."""


def draw(results: Sequence[Result], constants: Constants, output: Path) -> None:
    """Draw the results and write them to a file."""
    import matplotlib
    from matplotlib.figure import Figure

    # The same results give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "scale"
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    speed, shares = figure.subplots(1, 2)
    _draw_speed(speed, results, constants)
    _draw_shares(shares, [result for result in results if result.wanted == PER_NODE * result.nodes])
    figure.savefig(output, dpi=130, metadata={"Date": None} if output.suffix == ".svg" else None)


def _draw_speed(axes: Axes, results: Sequence[Result], constants: Constants) -> None:
    for colour, nodes in zip(COLOURS, dict.fromkeys(result.nodes for result in results), strict=False):
        rows = [result for result in results if result.nodes == nodes]
        scored = [result.rollouts_per_s * (1 - result.failed_share) for result in rows]
        name = f"{nodes:,} node" + ("s" if nodes > 1 else "")
        axes.plot([row.wanted for row in rows], scored, color=colour, marker="o", markersize=4, label=name)
    alone_s = (constants.tool_calls + 1) * constants.answer_tokens / constants.tokens_per_s
    levels = sorted({result.wanted for result in results})
    axes.plot(levels, [level / alone_s for level in levels], color=GREY, linewidth=1, linestyle=":",
              label=f"ideal: a rollout takes {alone_s:.0f} s")  # fmt: skip
    axes.set_title("scored rollouts per second", fontsize=10, loc="left")
    axes.set_xlabel("rollouts in flight, wanted")
    axes.set_yscale("log")
    _finish(axes, levels)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_shares(axes: Axes, results: Sequence[Result]) -> None:
    names = sorted({name for result in results for name, use in result.uses.items() if use.share > LEAST_SHARE})
    for at, name in enumerate(names):
        points = [(result.nodes, 100 * result.uses[name].share) for result in results]
        colour = COLOURS[at % len(COLOURS)]
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4)
        axes.annotate(name, points[-1], color=colour, fontsize=8, va="center", xytext=(8, 0),
                      textcoords="offset points")  # fmt: skip
    axes.axhline(100, color=GREY, linewidth=1, linestyle=":")
    axes.set_title(f"used share of each resource, %, with {PER_NODE} in flight per node", fontsize=10, loc="left")
    axes.set_xlabel("nodes")
    axes.set_yscale("log")
    axes.set_ylim(100 * LEAST_SHARE / 10)
    _finish(axes, [result.nodes for result in results])


def _finish(axes: Axes, levels: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(levels, [f"{level:,}" for level in levels])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
