"""The verifier that a new environment or benchmark reuses: its server, its agent and its example rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.reading import read_yaml
from nemo_gym.config.settings import AGENT_TIER, RESOURCES_TIER
from nemo_gym.config.tree import plain
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject
from nemo_gym.text import did_you_mean_or_all, search_dir_for

EXAMPLES = 5
PLAIN_AGENT = "simple_agent"
CONFIGS = f"{RESOURCES_TIER}/*/configs/*.yaml"


class Block(NamedTuple):
    """A server's folder and its settings."""

    implementation: str
    settings: JsonObject


class Reused(NamedTuple):
    """The parts of an existing environment that a new one reuses."""

    name: str
    server: Block
    agent: Block
    """The first agent that uses the server, or else `simple_agent`. Its list of datasets is empty."""
    datasets: list[Mapping[str, object]]
    """The agent's datasets for training and validation."""
    others: Mapping[str, object]
    """The rest of the config, such as the model server of a judge."""
    rows: list[Mapping[str, object]]
    """Example rows, with their prompts applied."""
    has_oracle: bool


def reused(name: str) -> Reused:
    """Return the parts of a resources server. `name` is its folder, or `folder/flavor` for its `flavor.yaml`."""
    folder, _, flavor = name.partition("/")
    config = f"{RESOURCES_TIER}/{folder}/configs/{flavor or folder}.yaml"
    path = paths.find(config, Path.is_file)
    if path is None:
        known = [(each.parents[1].name, each.stem) for root in paths.search_roots() for each in root.glob(CONFIGS)]
        if flavors := [config for name, config in known if name == folder]:
            hint = did_you_mean_or_all(flavor, flavors, f"configs of {folder}")
        else:
            folders = [name for name, _ in known]
            hint = did_you_mean_or_all(folder, folders, RESOURCES_TIER, if_none=search_dir_for(RESOURCES_TIER))
        raise DataError(f"reuse_verifier={name}: {config} not found.{hint}")
    top: Mapping[str, object] = plain(read_yaml(path))
    key, server = next(_blocks(top, RESOURCES_TIER, path))
    agents = [
        (name, block)
        for name, block in _blocks(top, AGENT_TIER, path)
        if (block.settings.get("resources_server") or {}).get("name") == key
    ]
    agent = agents[0][1] if agents else Block(PLAIN_AGENT, {"entrypoint": "app.py"})
    rows, has_oracle = _opened(config)
    return Reused(
        name=folder,
        server=server,
        agent=Block(agent.implementation, {**agent.settings, "datasets": []}),
        datasets=[each for each in agent.settings.get("datasets", ()) if each.get("type") in ("train", "validation")],
        others={name: block for name, block in top.items() if name != key and name not in dict(agents)},
        rows=rows,
        has_oracle=has_oracle,
    )


def _blocks(top: Mapping[str, object], tier: str, path: Path) -> Iterator[tuple[str, Block]]:
    """Yield the name and the block of each server of one type. `tier` is the type, such as `resources_servers`.

    Raise `DataError` if the config should have a resources server but has none.
    """
    found = [
        (name, Block(implementation, settings))
        for name, block in top.items()
        if isinstance(block, dict) and isinstance(block.get(tier), dict)
        for implementation, settings in block[tier].items()
    ]
    if not found and tier == RESOURCES_TIER:
        raise DataError(f"{path}: expected a block with {RESOURCES_TIER}, found none to reuse. Name another config.")
    yield from found


def _opened(config: str) -> tuple[list[Mapping[str, object]], bool]:
    """Open a config's environment. Return its first example rows, and whether it has an oracle."""
    # Import the module here, because it imports FastAPI, which most new environments do not need.
    from nemo_gym.contract.environment import open_configs

    with open_configs([config]) as environment:
        rows, has_oracle = environment.rows[:EXAMPLES], environment.oracle is not None
    if not rows:
        raise DataError(
            f"{config}: no dataset of the type example, so there are no example rows to copy. Add such a dataset, or "
            "name another config."
        )
    return [{name: value for name, value in row.items() if name != "agent_ref"} for row in rows], has_oracle
