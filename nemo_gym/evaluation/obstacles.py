"""Reasons why gates cannot be decided: the two runs must not be compared, or one of them has not measured anything."""

from __future__ import annotations

from collections.abc import Iterator

from nemo_gym.evaluation.comparison import Comparison
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import read_record
from nemo_gym.text import counted


def obstacles(comparison: Comparison, *, is_paired_by_key: bool, min_coverage: float) -> list[str]:
    """Return why no gate on this comparison can hold: other data, other agents, too few shared tasks, no answers.

    `min_coverage` is the least share of the tasks, of the run that has more of them, that both runs must have.
    """
    found = [] if is_paired_by_key else [*_other_data(comparison)]
    return [*found, *_other_agents(comparison), *_missing_tasks(comparison, min_coverage), *_no_answers(comparison)]


def _other_data(comparison: Comparison) -> Iterator[str]:
    runs = (comparison.a, comparison.b)
    records = [read_record(RunFiles(results=run.path).record) for run in runs]
    missing = [str(RunFiles(results=run.path).record) for run, record in zip(runs, records, strict=True) if not record]
    advice = "Pair the tasks by a row field: --key FIELD"
    if missing:
        yield f"{' and '.join(missing)} missing, so the tasks may be different ones. {advice}"
    a, b = (record.input if record else None for record in records)
    if a and b and a.sha256 != b.sha256:
        yield f"the input files differ: {a.path} and {b.path}. {advice}"


def _other_agents(comparison: Comparison) -> Iterator[str]:
    a, b = sorted(comparison.a.agents), sorted(comparison.b.agents)
    if a != b:
        yield f"the agents differ: {', '.join(a)} and {', '.join(b)}. Compare runs of the same agents"


def _missing_tasks(comparison: Comparison, min_coverage: float) -> Iterator[str]:
    # If there are several agents, the last pair is for all of them together.
    shared = len(comparison.pairs[-1].shared.tasks)
    planned = max(sum(len(each.tasks) for each in run.agents.values()) for run in (comparison.a, comparison.b))
    if shared < min_coverage * planned:
        yield (
            f"only {shared:,} of {counted(planned, 'task')} are in both runs ({shared / planned:.1%}, less than "
            f"{min_coverage:.1%}). Finish the shorter run, or pass a lower --min-coverage"
        )


def _no_answers(comparison: Comparison) -> Iterator[str]:
    for run in (comparison.a, comparison.b):
        scored = sum(each.rollouts for each in run.agents.values())
        unanswered = sum(each.unanswered for each in run.agents.values())
        if scored and scored == unanswered:
            yield (
                f"{run.path}: no answer was recognised in {unanswered:,} of {counted(scored, 'rollout')}, so its "
                "rewards measure nothing. Read some rollouts: ng eval show"
            )
