"""Pair the agents and the tasks of two runs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from nemo_gym.errors import DataError
from nemo_gym.evaluation.arrays import Integers, np
from nemo_gym.evaluation.scores import REWARD, AgentScores, Field, RunScores

OVERALL = "overall"
TASKS_SHOWN = 3


@dataclass(frozen=True)
class Subset:
    """Tasks that are in both runs, with their indices in run A (`at_a`) and in run B (`at_b`)."""

    name: str | None
    """The value of the row field that defines the subset. None for the subset of all shared tasks."""
    tasks: list[Hashable]
    at_a: Integers
    at_b: Integers


@dataclass(frozen=True)
class Pair:
    """The scores of one agent, or of all agents together, in both runs."""

    name: str
    a: AgentScores
    b: AgentScores
    shared: Subset
    only_a: int
    """The number of tasks that are only in run A."""
    only_b: int

    @classmethod
    def of(cls, name: str, a: AgentScores, b: AgentScores) -> Pair:
        """Pair the tasks of one agent in two runs. The result does not depend on the order of the rollouts."""
        a, b = a.with_fields_of(b), b.with_fields_of(a)
        place_in_b = {task: place for place, task in enumerate(b.tasks)}
        # Sort the tasks, because rollouts end in any order, and the random draws must not depend on this order.
        at_a = sorted(
            (place for place, task in enumerate(a.tasks) if task in place_in_b), key=lambda place: repr(a.tasks[place])
        )
        tasks = [a.tasks[place] for place in at_a]
        at_b = [place_in_b[task] for task in tasks]
        shared = Subset(None, tasks, np.array(at_a, dtype=np.int64), np.array(at_b, dtype=np.int64))
        return cls(name, a, b, shared, len(a.tasks) - len(tasks), len(b.tasks) - len(tasks))

    @property
    def metrics(self) -> list[str]:
        """The names of the numeric fields that both runs have."""
        return [name for name in self.a.fields if name in self.b.fields]

    @property
    def is_scored(self) -> bool:
        """Whether at least one task has scored rollouts in both runs."""
        in_a, in_b = self.a.fields[REWARD].counts[self.shared.at_a], self.b.fields[REWARD].counts[self.shared.at_b]
        return bool(((in_a > 0) & (in_b > 0)).any())

    def subsets(self) -> list[Subset]:
        """Return first the subset of all tasks, and then the named subsets. Not every task is in a named subset."""
        places_of: dict[str, list[int]] = {}
        for place, (a, b) in enumerate(zip(self.shared.at_a, self.shared.at_b, strict=True)):
            if name := self.a.subsets[a] or self.b.subsets[b]:
                places_of.setdefault(name, []).append(place)
        found = [self.shared]
        for name, places in sorted(places_of.items()):
            tasks = [self.shared.tasks[place] for place in places]
            found.append(Subset(name, tasks, self.shared.at_a[places], self.shared.at_b[places]))
        return found


def pairs_of(a: RunScores, b: RunScores) -> list[Pair]:
    """Return a pair for each agent that both runs have. If there are several, add a last pair for all agents together.

    If each run has only one agent, pair the two agents even if their names differ. Raise `DataError` if no agent
    or no task is in both runs.
    """
    names = {name: name for name in a.agents if name in b.agents}
    if not names and len(a.agents) == len(b.agents) == 1:
        names = {next(iter(a.agents)): next(iter(b.agents))}
    if not names:
        raise DataError(
            f"{b.path}: its agents ({', '.join(b.agents)}) are not those of {a.path} ({', '.join(a.agents)}). Compare "
            "runs of the same agents."
        )
    every = [Pair.of(one, a.agents[one], b.agents[other]) for one, other in sorted(names.items())]
    pairs = [pair for pair in every if pair.shared.tasks]
    if not pairs:
        raise DataError(
            f"{b.path}: no task is also in {a.path} ({_examples(a, b)}). To pair by a row field, pass --key."
        )
    if len(pairs) > 1:
        sides = ({pair.name: pair.a for pair in every}, {pair.name: pair.b for pair in every})
        pairs.append(Pair.of(OVERALL, *map(_together, sides)))
    return pairs


def _examples(a: RunScores, b: RunScores) -> str:
    both = [[str(task) for each in run.agents.values() for task in each.tasks[:TASKS_SHOWN]] for run in (a, b)]
    return " … and ".join(", ".join(tasks[:TASKS_SHOWN]) for tasks in both) + " …"


def _together(agents: dict[str, AgentScores]) -> AgentScores:
    """Merge the scores of several agents into those of one agent. Keep only the fields that every agent has."""
    first, *others = agents.values()
    shared = [name for name in first.fields if all(name in each.fields for each in others)]
    return AgentScores(
        tasks=[(name, task) for name, each in agents.items() for task in each.tasks],
        fields={name: _concatenated(each.fields[name] for each in agents.values()) for name in shared},
        failed=np.concatenate([each.failed for each in agents.values()]),
        subsets=[subset for each in agents.values() for subset in each.subsets],
        failed_by_cause={},
    )


def _concatenated(fields: Iterable[Field]) -> Field:
    parts = list(fields)
    return Field(
        counts=np.concatenate([part.counts for part in parts]),
        totals=np.concatenate([part.totals for part in parts]),
        squares=np.concatenate([part.squares for part in parts]),
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        is_binary=all(part.is_binary for part in parts),
    )
