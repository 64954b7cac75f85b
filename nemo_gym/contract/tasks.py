"""Tasks for a check, in addition to the example rows: rows of a file, or a sample of a dataset."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nemo_gym.contract.environment import Environment, agents_of
from nemo_gym.data.gather import AgentDataset, PathOf, no_dataset, numbered_rows_of
from nemo_gym.data.media import with_media, with_media_dir
from nemo_gym.jsonl import JsonObject, read_lines, read_raw_lines


class Task(NamedTuple):
    """A row to play, and its location for error messages."""

    place: str
    """The location of the row: `file:line`, or the number of an example."""
    row: JsonObject


def named_tools(row: Mapping[str, object]) -> list[JsonObject]:
    """Return the tools with a name in a row's request.

    Leave out invalid tools and requests, because a check of the rows reports them.
    """
    params = row.get("responses_create_params")
    tools = params.get("tools") if isinstance(params, dict) else None
    return [tool for tool in tools if isinstance(tool, dict) and tool.get("name")] if isinstance(tools, list) else []


def tasks_in(path: Path) -> list[Task]:
    """Return the rows of a file, with their media loaded."""
    return [
        Task(f"{path}:{line.number}", with_media(with_media_dir(line.row, path.parent))) for line in read_lines(path)
    ]


def sample_of(environment: Environment, type_: str, path_of: PathOf, *, count: int, seed: int) -> list[Task]:
    """Return `count` random rows of the environment's datasets of type `type_`, with their prompts applied.

    All rows are returned if there are fewer. Raise `DataError` if there is no such dataset.
    """
    sources = [
        AgentDataset(agent.name, dataset, path_of(agent, dataset))
        for agent in agents_of(environment.run, environment.name)
        for dataset in agent.datasets
        if dataset.type == type_
    ]
    if not sources:
        raise no_dataset(environment.run, f"dataset={type_}", type_)
    # Use each file once, because a config may name one file for several agents.
    own = list({each.path: each for each in sources}.values())
    sizes = [sum(1 for _ in read_raw_lines(each.path)) for each in own]
    total = sum(sizes)
    drawn = set(random.Random(seed).sample(range(total), min(count, total)))
    return [
        task._replace(row=with_media(task.row))
        for before, source in zip(_starts(sizes), own, strict=True)
        for place, task in enumerate(_tasks_of(source), start=before)
        if place in drawn
    ]


def _tasks_of(source: AgentDataset) -> list[Task]:
    return [Task(f"{source.path}:{number}", row) for number, row in numbered_rows_of(source)]


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:place]) for place in range(len(sizes))]
