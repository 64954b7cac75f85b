"""Check the settings of a run whose tasks are verified in groups, and order its rollouts by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nemo_gym.config.settings import LEAST_GROUP
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import parse_row, read_lines_at
from nemo_gym.rollouts.groups import GroupedTasks, Stored
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.resume import EarlierRun
from nemo_gym.schemas.row import TASK_INDEX_KEY, Row, offsets_by, rows_at, rows_in


def check_groups(path: Path, grouped: Mapping[str, str], settings: CollectionSettings) -> bool:
    """Return whether the repeats of a task in a file are verified together.

    `grouped` maps each agent to the server that verifies its groups. Raise `ConfigError` if a group could never be
    complete with these settings, or `DataError` with these rows.
    """
    sizes = group_sizes(rows_in(path), grouped) if grouped else {}
    if not sizes:
        return False
    (_, agent), least = min(sizes.items(), key=lambda item: item[1])
    together = f"'{grouped[agent]}' verifies all repeats of a task together"
    if least < LEAST_GROUP:
        raise ConfigError(
            f"num_repeats: {together}, but a task of agent '{agent}' has only one repeat. Add --num-repeats 2 or more."
        )
    for key in ("interleave_repeats", "until_halfwidth"):
        if getattr(settings, key):
            raise ConfigError(f"{key}: {together}, so they have to start together. Remove {key}.")
    return True


def group_sizes(rows: Iterable[Row], grouped: Mapping[str, str]) -> dict[tuple[int, str], int]:
    """Return the number of rows of each grouped task, keyed by the task's number and the agent of its first row.

    Raise `DataError` if a task has rows of agents that different servers verify. Each server would wait for the
    rollouts of the others.
    """
    sizes: Counter[tuple[int, str]] = Counter()
    agents: dict[int, str] = {}
    for row in rows:
        task, agent = row.key.task, str(row.agent)
        first = agents.setdefault(task, agent)
        if grouped.get(first) != grouped.get(agent):
            raise DataError(
                f"task {task} has rows of the agents '{first}' and '{agent}', which cannot be verified together, as a "
                f"server requires. Give the rows of each agent different {TASK_INDEX_KEY} numbers."
            )
        if agent in grouped:
            sizes[task, first] += 1
    return sizes


class TaskOrder:
    """The pending rollouts of a run in the order of their tasks."""

    def __init__(self, files: RunFiles, earlier: EarlierRun, groups: GroupedTasks) -> None:
        self._files = files
        self._earlier = earlier
        self._groups = groups
        self._left = 0

    def continues_a_group(self) -> bool:
        """Return whether the next rollout belongs to the same group as the previous rollout."""
        return self._left > 0

    def rows(self) -> Iterator[Row]:
        """Yield the pending rollouts, and register each grouped task before its first rollout."""
        scored, ungraded = self._offsets_in(self._files.results), self._offsets_in(self._files.ungraded)
        for rows in rows_by_task(self._files.materialized):
            owed = list(self._earlier.owed(rows))
            is_grouped = self._groups.key_of(rows[0]) is not None
            if owed and is_grouped:
                task = rows[0].key.task
                self._expect(rows, owed, scored.get(task, {}), ungraded.get(task, {}))
            for number, row in enumerate(owed, start=1):
                self._left = len(owed) - number if is_grouped else 0
                yield row

    def _expect(
        self, rows: list[Row], owed: list[Row], scored: Mapping[int, int], ungraded: Mapping[int, int]
    ) -> None:
        repeats, pending = {row.key.repeat: row.key for row in rows}, {row.key.repeat for row in owed}
        failures = self._earlier.failures
        self._groups.expect(
            rows[0],
            repeats,
            pending=pending,
            scored=stored_at(self._files.results, scored),
            absent={n: failures[key].cause for n, key in repeats.items() if n not in pending and n not in scored},
            stored=stored_at(self._files.ungraded, ungraded),
        )

    def _offsets_in(self, path: Path) -> dict[int, dict[int, int]]:
        """Return the file offsets of ended rollouts, by task and repeat, for tasks that have pending rollouts."""
        if not path.exists() or not path.stat().st_size:
            return {}
        return offsets_of(path, {row.key.task for row in self._earlier.owed(rows_in(self._files.materialized))})


def offsets_of(path: Path, tasks: Container[int]) -> dict[int, dict[int, int]]:
    """Return the file offsets of these tasks' rollouts, by task and repeat."""
    found: dict[int, dict[int, int]] = {}
    for offset, (number, raw) in read_lines_at(path):
        key = Row(parse_row(raw, path, number)).key
        if key.task in tasks:
            found.setdefault(key.task, {})[key.repeat] = offset
    return found


def stored_at(path: Path, offsets: Mapping[int, int]) -> dict[int, Stored]:
    """Return functions that read the rollouts at these offsets of a file, by repeat."""
    return {repeat: partial(next, rows_at(path, [offset])) for repeat, offset in offsets.items()}


def rows_by_task(path: Path) -> Iterator[list[Row]]:
    """Yield each task's rows as a list. They need not be adjacent in the file, because a resumed run appends rows."""
    for offsets in offsets_by(path, lambda key: key.task).values():
        yield list(rows_at(path, offsets))
