"""The report of a comparison: text for the terminal and for Markdown, and all results as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import NamedTuple

from nemo_gym.evaluation.comparison import Comparison, Estimate, Row
from nemo_gym.evaluation.differences import POWER, Bounds
from nemo_gym.evaluation.gates import ERROR, Decision
from nemo_gym.evaluation.pairing import OVERALL, Pair
from nemo_gym.evaluation.scores import REWARD, AgentScores
from nemo_gym.evaluation.setups import SetupDifference
from nemo_gym.evaluation.waivers import Waiver, waiver_of
from nemo_gym.text import counted, decimal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MANY_DIGITS_FROM = 10.0
CAUSES_SHOWN = 4
NOT_SCORED_CELLS = [*["–"] * 7, "0"]


@dataclass(frozen=True)
class Report:
    """The results of a comparison: the compared metrics, the differences between setups, and gates with waivers."""

    comparisons: Sequence[Comparison]
    setups: Sequence[Sequence[SetupDifference]]
    """For each comparison, the differences between the setups of its two runs."""
    obstacles: Sequence[Sequence[str]]
    """For each comparison, the reasons why no gate on it can hold. Empty without gates."""
    decisions: Sequence[Decision]
    waivers: Sequence[Waiver]
    today: date

    @property
    def expired(self) -> list[Waiver]:
        return [each for each in self.waivers if each.is_expired(self.today)]

    @property
    def unused(self) -> list[Waiver]:
        """The waivers that do not match any gate."""
        gates = [each.gate for each in self.decisions]
        return [waiver for waiver in self.waivers if not any(map(waiver.covers, gates))]

    @property
    def is_violated(self) -> bool:
        """Whether the runs cannot be compared, or a gate is violated or undecided and has no valid waiver."""
        return any(self.obstacles) or any(
            self.waiver_of(each) is None for each in self.decisions if each.verdict != "holds"
        )

    def waiver_of(self, decision: Decision) -> Waiver | None:
        """Return the gate's first waiver that has not expired, or None."""
        return waiver_of(decision.gate, self.waivers, self.today)

    def as_dict(self) -> Mapping[str, object]:
        """Return the report as JSON, in the format that `--json` writes."""
        return {
            "comparisons": [
                {
                    "a": str(each.a.path),
                    "b": str(each.b.path),
                    "setup_differences": [difference._asdict() for difference in setup],
                    "obstacles": list(obstacles),
                    "agents": [_pair_as_dict(pair) for pair in each.pairs],
                    "rows": [_row_as_dict(row) for row in each.rows],
                }
                for each, setup, obstacles in zip(self.comparisons, self.setups, self.obstacles, strict=True)
            ],
            "gates": [self._decision_as_dict(each) for each in self.decisions],
            "gates_hold": not self.is_violated,
            "expired_waivers": [waiver.name for waiver in self.expired],
        }

    def _decision_as_dict(self, decision: Decision) -> Mapping[str, object]:
        waiver = self.waiver_of(decision) if decision.verdict != "holds" else None
        return {
            "gate": decision.gate.text,
            "run": decision.run,
            "verdict": decision.verdict,
            "difference": decision.difference,
            **_bounds_as_dict(decision.bounds),
            "level": decision.level,
            "tasks_needed": decision.tasks_needed,
            "failed_as_zero": decision.with_failed_as_zero,
            "waived_by": waiver.name if waiver else None,
        }


class Section(NamedTuple):
    """The text about one agent of a comparison: a heading, a table, and lines below the table."""

    heading: str
    columns: list[str]
    rows: list[list[str]]
    lines: list[str]


def sections(comparison: Comparison, letter: str) -> Iterator[Section]:
    """Yield a section per agent. `letter` is the name of the second run in headings and columns."""
    unscored = [pair.name for pair in comparison.pairs if not pair.is_scored]
    for pair in comparison.pairs:
        rows = [row for row in comparison.rows if row.agent == pair.name]
        if not rows:
            continue
        has_subsets = any(row.subset is not None for row in rows)
        columns = ["metric", "A", letter, f"{letter} − A", "95% interval", "p", "won", "lost", "tasks"]
        yield Section(
            heading=_heading(pair, rows, letter),
            columns=["subset", *columns] if has_subsets else columns,
            rows=[cells[0 if has_subsets else 1 :] for row in rows for cells in _cells(row)],
            lines=_lines(pair, rows, letter, unscored),
        )


def gate_lines(report: Report) -> Iterator[str]:
    """Yield a line per gate, and a last line with the joint confidence level of all decisions."""
    for comparison, obstacles in zip(report.comparisons, report.obstacles, strict=True):
        run = f" in {comparison.b.path}" if len(report.comparisons) > 1 else ""
        yield from (f"✗ no gate{run} can hold: {reason}." for reason in obstacles)
    marks = {"holds": "✓", "violated": "✗", "undecided": "?"}
    for each in report.decisions:
        run = f" in {each.run}" if len(report.comparisons) > 1 else ""
        text = f"{marks[each.verdict]} {each.gate.text}{run}: {each.verdict}, {_signed(each.difference)}"
        text += f", interval {_interval(each.bounds)}"
        if each.with_failed_as_zero:
            text += ", with 0 for failed rollouts"
        if each.tasks_needed is not None:
            text += f"; about {each.tasks_needed:,} tasks would decide it if the difference stays the same"
        if each.verdict != "holds" and (waiver := report.waiver_of(each)) is not None:
            text += f". Waived by '{waiver.name}' until {waiver.until}: {waiver.reason}"
        yield text
    if report.decisions:
        level = f"{100 * report.decisions[0].level:.4g}"
        yield (
            f"Each gate is decided on a {level}% interval, so that all decided gates are right together with "
            f"{1 - ERROR:.0%} confidence. An undecided gate does not hold."
        )


def difference_text(difference: SetupDifference) -> str:
    return difference.text if difference.kind == "record" else f"{difference.kind} differs: {difference.text}"


def _heading(pair: Pair, rows: Sequence[Row], letter: str) -> str:
    row = next((each for each in rows if each.metric == REWARD and each.subset is None), rows[0])
    scored, as_zero = row.scored, row.failed_as_zero
    findings = [_finding(row.metric, scored, letter)] if scored else []
    if as_zero and not (scored and _direction(scored) == _direction(as_zero)):
        findings.append(f"with 0 for failed rollouts, {_finding(row.metric, as_zero, letter)}")
    return f"{pair.name}: {'; '.join(findings)}"


def _finding(metric: str, estimate: Estimate, letter: str) -> str:
    difference = estimate.difference
    text = f"{metric} {_signed(difference.mean)}, 95% interval {_interval(difference.bounds())}"
    direction = _direction(estimate)
    if direction is None:
        return f"no difference between A and {letter} is shown ({text})"
    return f"{letter} is {direction} than A ({text})"


def _direction(estimate: Estimate) -> str | None:
    bounds = estimate.difference.bounds()
    return "higher" if bounds.low > 0 else "lower" if bounds.high < 0 else None


def _cells(row: Row) -> Iterator[list[str]]:
    yield [row.subset or "all", row.metric, *(_estimate_cells(row.scored) if row.scored else NOT_SCORED_CELLS)]
    if row.failed_as_zero is not None:
        yield ["", "  failed = 0", *_estimate_cells(row.failed_as_zero)]


def _estimate_cells(estimate: Estimate) -> list[str]:
    p_value = "<0.001" if estimate.p_value < 0.001 else f"{estimate.p_value:.3f}"
    return [
        _plain(estimate.a),
        _plain(estimate.b),
        _signed(estimate.difference.mean),
        _interval(estimate.difference.bounds()),
        p_value,
        f"{estimate.won:,}",
        f"{estimate.lost:,}",
        f"{estimate.tasks:,}",
    ]


def _lines(pair: Pair, rows: Sequence[Row], letter: str, unscored: Sequence[str]) -> list[str]:
    lines = []
    lines += [
        f"No task of {name} has scored rollouts in both runs. Only the rows 'failed = 0' include {name}."
        for name in unscored
        if name != OVERALL and pair.name in (name, OVERALL)
    ]
    if pair.only_a or pair.only_b:
        lines.append(
            f"Not compared: {counted(pair.only_a, 'task')} only in A, {counted(pair.only_b, 'task')} only in {letter}."
        )
    if pair.name != OVERALL and (pair.a.failed.any() or pair.b.failed.any()):
        lines.append(f"Failed rollouts: A {_failures(pair.a)}; {letter} {_failures(pair.b)}.")
    for row in rows:
        if row.metric == REWARD and row.subset is None and row.scored is not None:
            lines.append(_power_line(row.scored))
    return lines


def _power_line(estimate: Estimate) -> str:
    detectable = estimate.difference.detectable()
    text = f"{estimate.tasks:,} tasks show a true reward difference of {_plain(detectable)} in {POWER:.0%} of runs"
    if not isfinite(detectable):
        text = "A single task cannot show a difference"
    if estimate.noise is None:
        return f"{text}. Without repeats, the noise of sampling is unknown."
    return f"{text}. Sampling alone makes equal models differ by up to {_plain(estimate.noise)}."


def _failures(scores: AgentScores) -> str:
    failed = int(scores.failed.sum())
    causes = sorted(scores.failed_by_cause.items(), key=lambda each: -each[1])
    shown = ", ".join(f"{count:,} {cause}" for cause, count in causes[:CAUSES_SHOWN])
    return f"{failed:,} of {failed + scores.rollouts:,}{f' ({shown})' if shown else ''}"


def _plain(value: float) -> str:
    return decimal(value, 3 if abs(value) < MANY_DIGITS_FROM else 1)


def _signed(value: float) -> str:
    text = _plain(abs(value))
    is_zero = not text.strip("0.")
    return text if is_zero else f"{'−' if value < 0 else '+'}{text}"


def _interval(bounds: Bounds) -> str:
    return f"{_signed(bounds.low)} … {_signed(bounds.high)}" if isfinite(bounds.high - bounds.low) else "unknown"


def _pair_as_dict(pair: Pair) -> Mapping[str, object]:
    return {
        "agent": pair.name,
        "tasks": len(pair.shared.tasks),
        "only_in_a": pair.only_a,
        "only_in_b": pair.only_b,
        **{
            side: {"scored": each.rollouts, "failed": int(each.failed.sum()), "causes": each.failed_by_cause}
            for side, each in (("a", pair.a), ("b", pair.b))
        },
    }


def _row_as_dict(row: Row) -> Mapping[str, object]:
    return {
        "agent": row.agent,
        "subset": row.subset,
        "metric": row.metric,
        **(
            _estimate_as_dict(row.scored)
            if row.scored
            else {**dict.fromkeys(_estimate_as_dict(row.estimate)), "tasks": 0}
        ),
        "failed_as_zero": row.failed_as_zero and _estimate_as_dict(row.failed_as_zero),
    }


def _estimate_as_dict(estimate: Estimate) -> Mapping[str, object]:
    detectable = estimate.difference.detectable()
    return {
        "tasks": estimate.tasks,
        "a": estimate.a,
        "b": estimate.b,
        "difference": estimate.difference.mean,
        **_bounds_as_dict(estimate.difference.bounds()),
        "method": estimate.difference.method,
        "p_value": estimate.p_value,
        "won": estimate.won,
        "lost": estimate.lost,
        "unchanged": estimate.tasks - estimate.won - estimate.lost,
        "detectable_difference": detectable if isfinite(detectable) else None,
        "noise_floor": estimate.noise,
        "most_lost": [task._asdict() for task in estimate.most_lost],
    }


def _bounds_as_dict(bounds: Bounds) -> Mapping[str, object]:
    return {
        "low": bounds.low if isfinite(bounds.low) else None,
        "high": bounds.high if isfinite(bounds.high) else None,
    }
