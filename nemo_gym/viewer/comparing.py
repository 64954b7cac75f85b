"""Compare runs task by task, with the same statistics as `ng eval compare`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from nemo_gym.errors import LaunchError
from nemo_gym.metrics.intervals import mean_interval
from nemo_gym.text import counted
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.conditions import Selected
from nemo_gym.viewer.index.entry import REPEAT_BITS
from nemo_gym.viewer.library import RunView
from nemo_gym.viewer.shortening import shortened

if TYPE_CHECKING:
    from nemo_gym.evaluation.scores import RunScores

MOST_RUNS = 6
MOST_TASKS = 500
MOST_SETTINGS = 200
ROUNDING = 1e-9
UNNAMED = "rollouts"
"""The agent name for rollouts whose row does not name an agent. `ng eval compare` uses the same name."""
SUMS = (
    f"agent, id >> {REPEAT_BITS}, COUNT(reward), TOTAL(reward), TOTAL(reward * reward), COUNT(*) - COUNT(reward),"
    " MIN(reward), MAX(reward), TOTAL(reward NOT IN (0, 1))"
)


class TaskId(NamedTuple):
    agent: str
    task: int


class TaskSums(NamedTuple):
    """Statistics of one task's rewards: their number, their sum and the sum of their squares."""

    scored: int
    total: float
    squares: float
    failed: int
    """The number of rollouts without a reward."""
    low: float | None
    """The lowest reward. None if no rollout is scored."""
    high: float | None
    fractions: int
    """The number of rewards other than 0 and 1."""

    @property
    def mean(self) -> float:
        return self.total / self.scored


@dataclass
class RunRewards:
    run: RunView
    tasks: dict[TaskId, TaskSums]

    @classmethod
    def read(cls, run: RunView, selected: Filter) -> RunRewards:
        """Sum the rewards of the selected rollouts. Rollouts that have not ended are skipped."""
        with run.index.selection(selected) as (db, rollouts):
            ended = Selected(rollouts.tables, [*rollouts.conditions, "outcome != 'unresolved'"])
            rows = db.execute(f"SELECT {SUMS} {ended.clause} GROUP BY 2, 1", rollouts.values)
            return cls(run, {TaskId(agent or UNNAMED, task): TaskSums(*sums) for agent, task, *sums in rows})

    @property
    def agents(self) -> list[str]:
        return list(dict.fromkeys(task.agent for task in self.tasks))

    @property
    def failed(self) -> int:
        return sum(sums.failed for sums in self.tasks.values())

    def of(self, agent: str) -> list[TaskSums]:
        """Return the sums of an agent's tasks with rewards."""
        return [sums for task, sums in self.tasks.items() if task.agent == agent and sums.scored]

    def renamed(self, agent: str) -> RunRewards:
        """Return a copy in which the agent has another name. The run must have only one agent."""
        return RunRewards(self.run, {TaskId(agent, each.task): sums for each, sums in self.tasks.items()})


def compare_json(runs: Sequence[RunView], selected: Filter) -> Mapping[str, object]:
    """Return the `Comparison` of api.ts. Tasks are paired by agent and task index."""
    rewards = _paired(runs, selected)
    base, *others = rewards
    shared = [task for task in base.tasks if all(task in each.tasks for each in others)]
    scored = [task for task in shared if all(each.tasks[task].scored for each in rewards)]
    span_of = {agent: _span(rewards, agent, scored) for agent in {task.agent for task in scored}}
    changes = {task: [_sign(base, other, task, span_of[task.agent]) for other in others] for task in scored}
    notes = list(_notes(rewards, shared, scored))
    differences: list[Mapping[str, object]] = []
    if scored:
        intervals = _intervals(base, others, scored, notes)
        for at, (other, interval) in enumerate(zip(others, intervals, strict=True)):
            signs = Counter(found[at] for found in changes.values())
            mean = _mean(other, scored) - _mean(base, scored)
            differences.append({"run": other.run.id, "mean": mean, **interval, **_counts(signs)})
    return {
        "runs": [run.id for run in runs], "shared": len(shared),
        "only": {each.run.id: len(each.tasks) - len(shared) for each in rewards},
        "means": [_mean_json(each, scored) for each in rewards] if scored else [], "differences": differences,
        "tasks": _tasks_json(rewards, changes), "settings": _settings(runs), "notes": notes,
    }  # fmt: skip


def _paired(runs: Sequence[RunView], selected: Filter) -> list[RunRewards]:
    """Return the rewards of the runs.

    If the first run and another run have only one agent each, give both agents the same name, so that they are paired.
    """
    base, *others = (RunRewards.read(run, selected) for run in runs)
    agents = base.agents
    is_alone = len(agents) == 1
    return [base, *(other.renamed(agents[0]) if is_alone and len(other.agents) == 1 else other for other in others)]


def _span(rewards: Sequence[RunRewards], agent: str, tasks: Iterable[TaskId]) -> float:
    """Return the scale of rounding errors: 1 if all rewards are 0 or 1, else the range of the means, including 0."""
    if not any(sums.fractions for each in rewards for sums in each.of(agent)):
        return 1.0
    means = [each.tasks[task].mean for each in rewards for task in tasks if task.agent == agent]
    return max(*means, 0.0) - min(*means, 0.0)


def _sign(base: RunRewards, other: RunRewards, task: TaskId, span: float) -> int:
    """Return 1 if the other run is better at a task, -1 if it is worse, and 0 if the means differ only by rounding."""
    difference = other.tasks[task].mean - base.tasks[task].mean
    return 0 if abs(difference) <= ROUNDING * span else 1 if difference > 0 else -1


def _counts(signs: Counter[int]) -> Mapping[str, object]:
    won, lost, same = signs[1], signs[-1], signs[0]
    return {"won": won, "lost": lost, "changed": won + lost, "same": same}


def _mean(rewards: RunRewards, tasks: Sequence[TaskId]) -> float:
    return sum(rewards.tasks[task].mean for task in tasks) / len(tasks)


def _mean_json(rewards: RunRewards, tasks: Sequence[TaskId]) -> Mapping[str, object]:
    found = mean_interval({task: [rewards.tasks[task].mean] for task in tasks})
    return {"run": rewards.run.id, "mean": found.mean, "ci": _bounds(found.low, found.high)}


def _bounds(low: float, high: float) -> list[float] | None:
    return [low, high] if isfinite(low) and isfinite(high) else None


def _intervals(
    base: RunRewards, others: Sequence[RunRewards], tasks: Sequence[TaskId], notes: list[str]
) -> list[Mapping[str, object]]:
    """Return the confidence interval and p-value of each run's difference from `base`. Both are null without numpy."""
    try:
        from nemo_gym.evaluation.comparison import row_of
        from nemo_gym.evaluation.pairing import pairs_of
        from nemo_gym.evaluation.scores import REWARD
    except LaunchError as error:
        notes.append(f"Intervals are missing: {error}")
        return [{"ci": None, "p": None} for _ in others]
    found: list[Mapping[str, object]] = []
    for other in others:
        # Use the last pair, because it combines all agents if there are several.
        pair = pairs_of(_as_scores(base, tasks), _as_scores(other, tasks))[-1]
        row = row_of(pair, pair.shared, REWARD)
        if row is None or row.scored is None:
            found.append({"ci": None, "p": None})
            continue
        bounds = row.scored.difference.bounds()
        found.append({"ci": _bounds(bounds.low, bounds.high), "p": row.scored.p_value})
    if len(tasks) == 1:
        notes.append("A single task cannot show a difference.")
    return found


def _as_scores(rewards: RunRewards, tasks: Sequence[TaskId]) -> RunScores:
    """Convert the rewards of a run to the `RunScores` that `ng eval compare` reads from files."""
    from nemo_gym.evaluation.arrays import np
    from nemo_gym.evaluation.scores import REWARD, AgentScores, Field, RunScores

    agents: dict[str, AgentScores] = {}
    for agent in dict.fromkeys(task.agent for task in tasks):
        own = [task for task in tasks if task.agent == agent]
        sums, every = [rewards.tasks[task] for task in own], rewards.of(agent)
        reward = Field(
            counts=np.array([each.scored for each in sums], dtype=np.int64),
            totals=np.array([each.total for each in sums]),
            squares=np.array([each.squares for each in sums]),
            low=min(each.low for each in every if each.low is not None),
            high=max(each.high for each in every if each.high is not None),
            is_binary=not any(each.fractions for each in every),
        )
        failed = np.array([each.failed for each in sums], dtype=np.int64)
        agents[agent] = AgentScores([task.task for task in own], {REWARD: reward}, failed, [""] * len(own), {})
    return RunScores(rewards.run.files.results, agents)


def _tasks_json(rewards: Sequence[RunRewards], changes: Mapping[TaskId, Sequence[int]]) -> list[Mapping[str, object]]:
    """Return the tasks whose rewards differ most, the largest difference first."""

    def means_of(task: TaskId) -> list[float]:
        return [each.tasks[task].mean for each in rewards]

    def size(task: TaskId) -> float:
        base, *others = means_of(task)
        return max(abs(other - base) for other in others)

    largest = sorted(changes, key=lambda task: (-size(task), task.task))[:MOST_TASKS]
    index = rewards[0].run.index
    return [
        {"task": task, "title": index.title(task), "rewards": means_of(each), "change": _change(changes[each])}
        for each in largest for task in [each.task]
    ]  # fmt: skip


def _change(signs: Sequence[int]) -> str:
    if 1 in signs and -1 in signs:
        return "changed"
    return "won" if 1 in signs else "lost" if -1 in signs else "same"


def _settings(runs: Sequence[RunView]) -> Sequence[Mapping[str, object]]:
    """Return the settings that differ between the runs."""
    each_runs = [run.as_json().get("settings") or {} for run in runs]
    names = sorted({name for settings in each_runs for name in settings})
    rows = ((name, [settings.get(name) for settings in each_runs]) for name in names)
    differing = [row for row in rows if any(value != row[1][0] for value in row[1])][:MOST_SETTINGS]
    return [{"name": name, "values": [shortened(value, 2_000) for value in values]} for name, values in differing]


def _notes(rewards: Sequence[RunRewards], shared: Sequence[TaskId], scored: Sequence[TaskId]) -> Iterable[str]:
    if not shared:
        yield "The runs do not have a task in common. Tasks are paired by their agent and number."
    elif not scored:
        yield "No task has a scored rollout in every run."
    elif len(scored) < len(shared):
        missing = counted(len(shared) - len(scored), "shared task")
        yield f"{missing} without a scored rollout in every run: not compared."
    digests = {each.run.record.input.sha256 for each in rewards if each.run.record is not None}
    if len(digests) > 1:
        yield "The task files of the runs differ, so tasks with the same number may not be the same task."
    for each in rewards:
        if each.failed:
            yield f"{each.run.name}: {counted(each.failed, 'failed rollout')} left out of the means."
