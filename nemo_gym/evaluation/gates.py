"""Gates: conditions on a difference between two runs, such as `mcqa.accuracy >= -0.01`.

A gate is decided by the confidence interval of the difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal, NamedTuple

from nemo_gym.errors import UsageError
from nemo_gym.evaluation.comparison import ACCURACY, Comparison, Estimate, Row, metrics_of, row_of
from nemo_gym.evaluation.differences import Bounds
from nemo_gym.evaluation.pairing import OVERALL, Pair, Subset
from nemo_gym.evaluation.scores import REWARD
from nemo_gym.evaluation.tasks import k_of
from nemo_gym.text import counted, did_you_mean

ERROR = 0.05
"""The maximum probability that at least one of the decided gates is wrong."""
EXAMPLE = "such as 'mcqa.accuracy >= -0.01' or 'mcqa[algebra].pass@8 > 0'"

Verdict = Literal["holds", "violated", "undecided"]

_OPERATOR = re.compile(r"[<>=!]+")
_TARGET = re.compile(r"(?:(?P<agent>[^\[\]]+?)(?:\[(?P<subset>[^\]]+)\])?\.)?(?P<metric>[^.\[\]]+)")


@dataclass(frozen=True)
class Gate:
    """A condition on the difference of one metric, B minus A."""

    text: str
    agent: str | None
    """The agent to compare. None means all agents together."""
    subset: str | None
    metric: str
    operator: str
    limit: float

    @property
    def condition(self) -> tuple[object, ...]:
        """The parsed parts of the gate, which are equal for all spellings of the same gate."""
        return (self.agent, self.subset, self.metric, self.operator, self.limit)

    def verdict(self, bounds: Bounds) -> Verdict:
        """Return `holds` if the whole interval meets the condition, `violated` if no part does, else `undecided`."""
        ends = [self._is_met(end) for end in bounds]
        return "holds" if all(ends) else "undecided" if any(ends) else "violated"

    def _is_met(self, value: float) -> bool:
        tests = {
            ">=": value >= self.limit, ">": value > self.limit, "<=": value <= self.limit, "<": value < self.limit
        }  # fmt: skip
        return tests[self.operator]


class Decision(NamedTuple):
    """The verdict on a gate for one of the compared runs."""

    gate: Gate
    run: str
    verdict: Verdict
    difference: float
    bounds: Bounds
    level: float
    tasks_needed: int | None
    """The number of tasks with which an undecided gate would hold if the observed difference is the true one."""
    with_failed_as_zero: bool
    """Whether the verdict comes from the estimate with 0 for each failed rollout."""


def parse_gate(text: str) -> Gate:
    """Parse `[AGENT[SUBSET].]METRIC >= NUMBER`. Raise `UsageError` with the column of a mistake."""
    operator = _OPERATOR.search(text)
    if operator is None:
        raise _wrong(text, len(text), "a comparison (>=, >, <=, <) is missing")
    if operator[0] not in (">=", ">", "<=", "<"):
        raise _wrong(text, operator.start(), f"expected >=, >, <= or <, found '{operator[0]}'")
    name = text[: operator.start()].strip()
    target = _TARGET.fullmatch(name)
    if target is None:
        raise _wrong(text, 0, f"expected METRIC, AGENT.METRIC or AGENT[SUBSET].METRIC, found '{name}'")
    number = text[operator.end() :].strip()
    place = operator.end() + len(text[operator.end() :]) - len(text[operator.end() :].lstrip())
    try:
        limit = float(number)
    except ValueError:
        raise _wrong(text, place, f"expected a number such as -0.01, found '{number}'") from None
    if not isfinite(limit):
        raise _wrong(text, place, "the limit must be finite")
    return Gate(text, target["agent"], target["subset"], target["metric"].strip(), operator[0], limit)


def _wrong(text: str, column: int, problem: str) -> UsageError:
    return UsageError(f"gate '{text}': column {column + 1}: {problem}. Write a gate {EXAMPLE}.")


def decide(gates: Sequence[Gate], comparisons: Sequence[Comparison]) -> list[Decision]:
    """Decide each gate for each compared run.

    Each of the m intervals has the level 1 - `ERROR` / m (Bonferroni). The probability that all decided gates are
    right is therefore at least 1 - `ERROR`. If rollouts failed, a gate on a score must hold twice: without the
    failed rollouts, and with 0 for each of them.
    """
    cases = [(gate, each, _row_of(gate, each)) for gate in gates for each in comparisons]
    level = 1 - ERROR / max(1, sum(len(_estimates(row)) for _, _, row in cases))
    return [_decision(gate, str(each.b.path), row, level) for gate, each, row in cases]


def _decision(gate: Gate, run: str, row: Row, level: float) -> Decision:
    estimates = _estimates(row)
    order: tuple[Verdict, ...] = ("violated", "undecided", "holds")
    bounds = [each.difference.bounds(level) for each in estimates]
    verdicts = [gate.verdict(each) for each in bounds]
    worst = min(range(len(estimates)), key=lambda place: order.index(verdicts[place]))
    mean = estimates[worst].difference.mean
    needed = None
    if verdicts[worst] == "undecided" and mean != gate.limit and gate.verdict(Bounds(mean, mean)) == "holds":
        half = max(mean - bounds[worst].low, bounds[worst].high - mean)
        if isfinite(half):
            needed = ceil(estimates[worst].tasks * (half / (mean - gate.limit)) ** 2)
    is_as_zero = estimates[worst] is row.failed_as_zero
    return Decision(gate, run, verdicts[worst], mean, bounds[worst], level, needed, is_as_zero)


def _estimates(row: Row) -> list[Estimate]:
    is_score = row.metric == REWARD or k_of(row.metric) is not None or row.estimate.difference.span <= 1
    return [each for each in (row.scored, row.failed_as_zero if is_score else None) if each is not None]


def _row_of(gate: Gate, comparison: Comparison) -> Row:
    pair = _pair_of(gate, comparison)
    subset = _subset_of(gate, pair)
    is_renamed = gate.metric == ACCURACY and ACCURACY not in pair.metrics
    metric = REWARD if is_renamed else gate.metric
    name = (pair.name, subset.name, metric)
    known = next((row for row in comparison.rows if (row.agent, row.subset, row.metric) == name), None)
    row = known or row_of(pair, subset, metric)
    if row is None:
        raise UsageError(
            f"gate '{gate.text}': no task of {pair.name} has the metric '{metric}' in both runs."
            f"{did_you_mean(metric, pair.metrics)} {metrics_of([pair])}"
        )
    if not _estimates(row):
        raise UsageError(
            f"gate '{gate.text}': no task has scored rollouts of {pair.name} in both runs. '{metric}' is not a score, "
            "so failed rollouts do not count as 0. Collect the failed rollouts again."
        )
    return row


def _pair_of(gate: Gate, comparison: Comparison) -> Pair:
    """Return the pair of results that a gate compares: those of all agents together, or of the agent that it names.

    The gate may name an agent by a prefix that no other agent's name has.
    """
    names = {pair.name: pair for pair in comparison.pairs}
    if gate.agent in (None, OVERALL):
        return comparison.pairs[-1]
    if gate.agent in names:
        return names[str(gate.agent)]
    similar = [name for name in names if name.startswith(str(gate.agent))]
    if len(similar) == 1:
        return names[similar[0]]
    problem = f"begins the names of {counted(len(similar), 'agent')}" if similar else "is not an agent of both runs"
    raise UsageError(f"gate '{gate.text}': '{gate.agent}' {problem}. Agents: {', '.join(similar or names)}.")


def _subset_of(gate: Gate, pair: Pair) -> Subset:
    subsets = {subset.name: subset for subset in pair.subsets()}
    if gate.subset in subsets:
        return subsets[gate.subset]
    known = [str(name) for name in subsets if name is not None]
    advice = f"Subsets: {', '.join(known)}" if known else "Pass the row field of the subsets, such as --by subject"
    raise UsageError(f"gate '{gate.text}': {pair.name} has no subset '{gate.subset}'. {advice}.")
