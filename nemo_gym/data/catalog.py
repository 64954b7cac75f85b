"""Catalog of the servers, environments and benchmarks in the search roots."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from nemo_gym import paths
from nemo_gym.config.foreign import follow_directives
from nemo_gym.config.reading import read_yaml
from nemo_gym.config.server_folders import ServerFolder, nested_folders
from nemo_gym.config.settings import AGENT_TIER, SERVER_TYPES, ServerType
from nemo_gym.config.sources import gather
from nemo_gym.config.tree import plain
from nemo_gym.data.benchmarks import benchmark_files
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import read_raw_lines
from nemo_gym.text import did_you_mean_or_all, search_dir_for

ENVIRONMENTS = "environments"
DEFAULT_FLAVOR = "config"
ALIKE = 0.7
"""The minimum similarity (`difflib`) for a match. The misspelling `sudoko` is still similar enough to `sudoku`."""

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Component:
    """A server, environment or benchmark that a configuration can name."""

    name: str
    """The folder name, or `folder/flavor` for a config that is not the folder's default one."""
    kind: str
    """`resources-server`, `agent`, `model`, `environment` or `benchmark`."""
    path: Path
    """A server's folder, or the config file of an environment or benchmark."""
    domain: str | None = None
    description: str | None = None
    configs: tuple[str, ...] = ()
    """The names of a server's configs."""
    agents: tuple[str, ...] = ()
    """The agents that the config defines."""
    datasets: tuple[str, ...] = ()
    """The agents' datasets, each as `name (type)`."""
    num_repeats: int | None = None
    """The number of times that each row of a benchmark is run."""
    rows: int | None = None
    """The number of a benchmark's rows. None if the config has no `size` and the file does not exist."""
    license: str | None = None
    """The license of a benchmark's data."""
    is_prepared: bool | None = None
    """Whether a benchmark's data exists."""


KINDS: dict[ServerType, str] = {
    "resources_servers": "resources-server",
    "responses_api_agents": "agent",
    "responses_api_models": "model",
}


def servers(tier: ServerType, notice: Notice) -> list[Component]:
    """Return the server folders of one tier, sorted by name. The first root that has a name wins."""
    found: dict[str, Path] = {}
    for root in paths.search_roots():
        direct = sorted(app.parent for app in (root / tier).glob("*/app.py"))
        nested = (folder for folder in nested_folders(root / tier) if (folder / "app.py").is_file())
        for folder in (*direct, *nested):
            found.setdefault(ServerFolder.of(folder).implementation, folder)
    return [_server(tier, name, folder, notice) for name, folder in sorted(found.items())]


def environments(notice: Notice) -> list[Component]:
    """Return the environments, sorted by name: all benchmarks, and all other configs that define an agent.

    The configs are those in `environments/` and in the folders of resources servers.
    """
    described = (_described(name, "environment", path, notice) for name, path in _environment_configs())
    with_agents = (each for each in described if each is not None and each.agents)
    found: dict[str, Component] = {}
    for component in (*with_agents, *benchmarks(notice)):
        found.setdefault(component.name, component)
    return [found[name] for name in sorted(found)]


def benchmarks(notice: Notice) -> list[Component]:
    """Return the benchmarks, sorted by name."""
    described = (_described(name, "benchmark", path, notice) for name, path in benchmark_files().items())
    return [component for component in described if component is not None]


def named(components: Sequence[Component], name: str, what: str) -> Component:
    """Return the component with this name. Raise `DataError`, with a suggestion, if it is missing."""
    found = next((each for each in components if each.name == name), None)
    if found is None:
        hint = did_you_mean_or_all(
            name, [each.name for each in components], what, if_none=search_dir_for(what.replace(" ", "_"))
        )
        raise DataError(f"'{name}' not found among the {what}.{hint}")
    return found


def matching(components: Iterable[Component], query: str) -> list[Component]:
    """Return the components whose name, domain or description contains the query or a similar word."""
    wanted = query.casefold()
    return [
        each
        for each in components
        if any(_is_like(text.casefold(), wanted) for text in (each.name, each.domain, each.description) if text)
    ]


def _is_like(text: str, wanted: str) -> bool:
    return wanted in text or bool(get_close_matches(wanted, [text, *re.findall(r"\w+", text)], n=1, cutoff=ALIKE))


def _server(tier: ServerType, name: str, folder: Path, notice: Notice) -> Component:
    component = Component(name, KINDS[tier], folder)
    for config in sorted((folder / "configs").glob("*.yaml")):
        component = replace(component, configs=(*component.configs, config.stem))
        for implementation, settings in _implementations(_blocks(config, notice), tier):
            if implementation == name:
                component = _with_metadata(component, settings)
    return component


def _environment_configs() -> Iterator[tuple[str, Path]]:
    """Yield the configs that may define an environment, with the environment's name."""
    for root in paths.search_roots():
        for path in sorted((root / ENVIRONMENTS).rglob("*.yaml")):
            parts = path.relative_to(root / ENVIRONMENTS).with_suffix("").parts
            yield "/".join(parts[:-1] if parts[-1] == DEFAULT_FLAVOR else parts), path
    for server in servers("resources_servers", notice=lambda text: None):
        for flavor in server.configs:
            name = server.name if flavor == server.path.name else f"{server.name}/{flavor}"
            yield name, server.path / "configs" / f"{flavor}.yaml"


def _described(name: str, kind: str, path: Path, notice: Notice) -> Component | None:
    own = _blocks(path, notice)
    if not own:
        return None
    blocks = _with_included(path) or own
    component = Component(name, kind, path)
    # The config's own domain and description override those of the files that it includes, so apply them last.
    for found in (blocks, own):
        for tier in reversed(SERVER_TYPES):
            for _, settings in _implementations(found, tier):
                component = _with_metadata(component, settings)
    agents = tuple(key for key, block in blocks.items() if isinstance(block, dict) and AGENT_TIER in block)
    datasets = [
        dataset
        for _, settings in _implementations(blocks, AGENT_TIER)
        if isinstance(listed := settings.get("datasets"), list)
        for dataset in listed
        if isinstance(dataset, dict)
    ]
    labels = tuple(f"{dataset.get('name')} ({dataset.get('type')})" for dataset in datasets)
    component = replace(component, agents=agents, datasets=labels)
    benchmark = next((dataset for dataset in datasets if dataset.get("type") == "benchmark"), None)
    return _with_data(component, benchmark) if benchmark else component


def _with_data(component: Component, dataset: Mapping[str, object]) -> Component:
    """Return a component with the fields that describe a benchmark's data, such as the number of rows."""
    size, repeats = dataset.get("size"), dataset.get("num_repeats", 1)
    file = paths.find(str(dataset.get("jsonl_fpath")), Path.is_file)
    rows = size if isinstance(size, int) else sum(1 for _ in read_raw_lines(file)) if file else None
    return replace(
        component,
        num_repeats=repeats if isinstance(repeats, int) else None,
        rows=rows,
        license=str(dataset["license"]) if dataset.get("license") else None,
        is_prepared=file is not None,
    )


def _with_metadata(component: Component, settings: Mapping[str, object]) -> Component:
    domain, description = (str(settings.get(key) or "") for key in ("domain", "description"))
    return replace(component, domain=domain or component.domain, description=description or component.description)


def _implementations(blocks: Mapping[str, object], tier: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    for block in blocks.values():
        held = block.get(tier) if isinstance(block, dict) else None
        if isinstance(held, dict):
            yield from ((str(name), settings) for name, settings in held.items() if isinstance(settings, dict))


def _with_included(path: Path) -> Mapping[str, object]:
    """Return a config's top level merged with the files that it includes, or {} if one of them cannot be read."""
    try:
        top: Mapping[str, object] = plain(follow_directives(gather([path], (), None, None, skip_dotenv=True).tree))
    except ConfigError:
        return {}
    return top


def _blocks(path: Path, notice: Notice) -> Mapping[str, object]:
    """Return a config's own top level, without the files that it includes.

    If the config cannot be read, pass the error to `notice` and return {}.
    """
    try:
        top: Mapping[str, object] = plain(read_yaml(path))
    except ConfigError as error:
        notice(f"note: {error}")
        return {}
    return top
