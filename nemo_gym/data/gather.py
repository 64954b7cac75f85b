"""Gather the datasets of a run's agents into one task file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.models import DatasetConfig, RunConfig, ServerConfig
from nemo_gym.data.media import with_media_dir
from nemo_gym.data.prompts import load_prompt_config, with_prompt
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, read_lines
from nemo_gym.schemas.row import Row

BENCHMARK = "benchmark"


class AgentDataset(NamedTuple):
    """A dataset of an agent, and the path of its file."""

    agent: str
    dataset: DatasetConfig
    path: Path


def file_of(agent: ServerConfig, dataset: DatasetConfig) -> Path:
    """Return the path of a dataset's file. If it is missing, raise `DataError` with the config line that names it."""
    found = paths.find(dataset.jsonl_fpath, Path.is_file)
    if found is not None:
        return found
    advice = f"Create it with {dataset.prepare_script}." if dataset.prepare_script else "Prepare or download it first."
    raise DataError(missing_file(agent, dataset, advice))


PathOf = Callable[[ServerConfig, DatasetConfig], Path]
"""A function that returns the path of a dataset's file, or raises `DataError` if it is missing."""


def split_of(run: RunConfig) -> str:
    """Return the split of a run that does not name one: benchmark, or else the only type of datasets with rows."""
    datasets = [each for agent in run.servers_of("responses_api_agents") for each in agent.datasets]
    with_rows = {each.type for each in datasets if paths.find(each.jsonl_fpath, Path.is_file)}
    has_benchmark = any(each.type == BENCHMARK for each in datasets)
    return BENCHMARK if has_benchmark or len(with_rows) != 1 else with_rows.pop()


def datasets_of_split(run: RunConfig, split: str, path_of: PathOf = file_of) -> list[AgentDataset]:
    """Return the agents' datasets of type `split`. Raise `DataError` if no agent has one, or if a file is missing."""
    found = [
        AgentDataset(agent.name, dataset, path_of(agent, dataset))
        for agent in run.servers_of("responses_api_agents")
        for dataset in agent.datasets
        if dataset.type == split
    ]
    if found:
        return found
    raise no_dataset(run, f"split={split}", split)


def no_dataset(run: RunConfig, setting: str, *types: str) -> DataError:
    """Return the error for a setting that asks for datasets of types that no agent has."""
    have = sorted({dataset.type for agent in run.servers.values() for dataset in agent.datasets})
    return DataError(
        f"{setting}: no agent of this configuration has a dataset of type {' or '.join(types)}. "
        + (f"Available types: {', '.join(have)}." if have else "Add one to the datasets of an agent.")
    )


def rows_of(
    datasets: Iterable[AgentDataset], *, copies: bool, replaced_agents: Mapping[str, str] | None = None
) -> Iterator[JsonObject]:
    """Yield the rows of all datasets with their agent, prompt and media folder applied.

    With `copies`, yield `num_repeats` copies of each row; each dataset sets this number. `replaced_agents` maps an
    agent's name to the name of the agent that runs its rows instead.
    """
    for each in datasets:
        for _, row in numbered_rows_of(each):
            if replaced_agents and (new := replaced_agents.get(str(Row(row).agent))):
                row["agent_ref"] = {**row["agent_ref"], "name": new}
            for _ in range(each.dataset.num_repeats if copies else 1):
                yield row


def numbered_rows_of(source: AgentDataset) -> Iterator[tuple[int, JsonObject]]:
    """Yield each row of a dataset with its line number. The agent, the prompt and the media folder are applied.

    Raise `DataError`, with file and line, if the prompt does not fit a row, or if the row already has an input.
    """
    agent, dataset, path = source
    prompt = load_prompt_config(dataset.prompt_config) if dataset.prompt_config else None
    for number, _, row in read_lines(path):
        if not row.get("agent_ref"):
            row["agent_ref"] = {"type": "responses_api_agents", "name": agent}
        yield number, with_media_dir(with_prompt(row, prompt, f"{path}:{number}"), path.parent)


def missing_file(agent: ServerConfig, dataset: DatasetConfig, advice: str) -> str:
    """Return the error message for a dataset whose file is missing, with the config line that names the file."""
    places = ", ".join(map(str, paths.search_roots()))
    origin = agent.origins.get(f"datasets.{agent.datasets.index(dataset)}.jsonl_fpath")
    place = f"{origin}: {agent.name}.datasets" if origin else f"{agent.name}.datasets"
    return f"{place}: dataset '{dataset.name}': file '{dataset.jsonl_fpath}' not found in {places}. {advice}"
