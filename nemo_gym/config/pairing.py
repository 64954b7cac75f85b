"""Pair the environments of a configuration with another agent, as requested by `agent_config` or `--agent-type`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from nemo_gym.config.allowed_pairings import (
    AGENT_SERVER,
    ALLOWED_AGENTS,
    ALLOWED_MODEL_TYPES,
    MODEL_SERVER,
    RESOURCES_SERVER,
)
from nemo_gym.config.foreign import follow_directives
from nemo_gym.config.models import Origin
from nemo_gym.config.overrides import is_typed
from nemo_gym.config.reading import read_yaml
from nemo_gym.config.settings import AGENT_TIER, ENVIRONMENT_SERVERS, RESOURCES_TIER, SERVER_TYPES
from nemo_gym.config.sources import gather
from nemo_gym.config.tree import UNSET, Node, merge, node_of, walk
from nemo_gym.errors import ConfigError
from nemo_gym.paths import find

AGENT_CONFIG = "agent_config"
LEGACY_AGENT = "legacy_agent"
"""The implementation of an `environment_servers` block that is only another name of an agent."""
DATASETS = "datasets"
OF_THE_ENVIRONMENT = (RESOURCES_SERVER, MODEL_SERVER, ALLOWED_AGENTS, ALLOWED_MODEL_TYPES, DATASETS)
"""The settings of an agent's block that describe the environment and not the agent."""


class Paired(NamedTuple):
    """A configuration tree after `agent_config` was applied."""

    tree: Node
    replaced: dict[str, str]
    """The name of the new agent, keyed by the name of the agent that it replaces."""
    added: tuple[str, ...] = ()
    """The names of the new agents."""


class _Agent(NamedTuple):
    """An agent's block: its folder and its settings."""

    implementation: str
    settings: Node

    @property
    def environment(self) -> str:
        """The name of the agent's resources server, or an empty string if there is none."""
        held = self.settings.mapping.get(RESOURCES_SERVER)
        return str(held.mapping["name"].value) if held and "name" in held.mapping else ""

    def block(self, origin: Origin) -> Node:
        return Node({AGENT_TIER: Node({self.implementation: self.settings}, origin)}, origin)


class _Template(NamedTuple):
    """The agent in the file to which `agent_config` refers, without its environment."""

    agent: _Agent
    is_default: bool
    """Whether the file has the name of the agent's folder. If so, environments keep their own block of
    this agent."""
    rest: Node
    """The other top-level entries of the file, without servers to which the agent does not refer."""

    @classmethod
    def of(cls, agent: _Agent, path: Path, rest: Node) -> Self:
        """Return the template in the file `path`."""
        settings = agent.settings.without(*OF_THE_ENVIRONMENT)
        model = {key: node for key, node in agent.settings.mapping.items() if key == MODEL_SERVER}
        is_typed_over = any(is_typed(node.origin) for _, node in walk(settings))
        is_default = path.stem == Path(agent.implementation).name and not is_typed_over
        return cls(_Agent(agent.implementation, settings.updated(**model)), is_default, rest)


def with_other_agent(tree: Node) -> Paired:
    """Return the tree with the agent of each environment replaced by the agent of `agent_config`.

    Without `agent_config`, use the only agent whose environment is unset, as in an agent's own config. An environment
    that already has this agent keeps it. Raise ConfigError unless the file defines exactly one agent.
    """
    given, template_name = tree.mapping.get(AGENT_CONFIG), None
    if given is not None and given.value is not None:
        template, tree = _template(given), tree.without(AGENT_CONFIG)
    else:
        unset = [(name, each) for name, each in _agents_in(tree).items() if each.environment == UNSET]
        if len(unset) != 1 or not any(_blocks_of(tree, RESOURCES_TIER)):
            return Paired(tree, {})
        ((template_name, agent),) = unset
        path, tree = Path(agent.settings.origin.file), tree.without(template_name)
        template = _Template.of(agent, path, Node({}, agent.settings.origin))
    agents = _agents_in(tree) or dict(_agents_for_servers(tree, template.agent))
    owned = {
        each.environment: name for name, each in agents.items() if each.implementation == template.agent.implementation
    }
    result, replaced, new_ones = tree, dict[str, str](), dict[str, None]()
    for name, old in agents.items():
        is_same = old.implementation == template.agent.implementation
        if is_same and template.is_default:
            continue
        new = name if is_same else owned.get(old.environment) or _name(name, old, template.agent, result)
        new = template_name if template_name and new not in owned.values() and len(agents) == 1 else new
        _check_not_typed(name, old, new)
        is_flavor = new in owned.values() and not template.is_default
        block = _joined(result.mapping.get(new), template.agent, old, is_flavor=is_flavor)
        if new not in owned.values():
            new_ones[new] = None
        if new != name and name in result.mapping:
            replaced[name] = new
            result = result.updated(**{name: _alias_of(new, old.settings.origin)})
        result = result.updated(**{new: block})
    added = {str(key): node for key, node in template.rest.mapping.items() if key not in result.mapping}
    return Paired(_referring(result.updated(**added), replaced), replaced, tuple(new_ones))


def _template(given: Node) -> _Template:
    path = find(str(given.value), Path.is_file)
    if path is None:
        raise ConfigError(
            f"{given.origin}: {AGENT_CONFIG}: the file '{given.value}' does not exist. Name the config of an agent, "
            "or use --agent-type NAME."
        )
    tree = follow_directives(gather([path], (), None, None, skip_dotenv=True).tree)
    own = read_yaml(path).mapping
    agents = {name: each for name, each in _blocks_of(tree, AGENT_TIER) if name in own}
    if len(agents) != 1:
        found = f"the agents {', '.join(agents)}" if agents else "no agent of its own"
        raise ConfigError(
            f"{given.value} defines {found}. Set {AGENT_CONFIG} to a config that defines exactly one agent."
        )
    ((name, agent),) = agents.items()
    settings = agent.settings.without(*OF_THE_ENVIRONMENT)
    named = {str(node.mapping["name"].value) for _, node in walk(settings) if _is_reference(node)}
    servers = {key for key, block in tree.mapping.items() if any(tier in block.mapping for tier in SERVER_TYPES)}
    return _Template.of(agent, path, tree.without(*(servers - named), name))


def _blocks_of(tree: Node, tier: str) -> Iterator[tuple[str, _Agent]]:
    for name, block in tree.mapping.items():
        held = block.mapping.get(tier)
        if held is not None and len(held.mapping) == 1:
            ((implementation, settings),) = held.mapping.items()
            yield str(name), _Agent(str(implementation), settings)


def _agents_in(tree: Node) -> dict[str, _Agent]:
    """Return the agents that have a resources server. Skip agents that delegate to an `agent_server`."""
    return {
        name: each
        for name, each in _blocks_of(tree, AGENT_TIER)
        if RESOURCES_SERVER in each.settings.mapping and AGENT_SERVER not in each.settings.mapping
    }


def _agents_for_servers(tree: Node, agent: _Agent) -> Iterator[tuple[str, _Agent]]:
    """Yield an agent for each resources server of a tree without agents. The agent's only setting is that server."""
    for name, server in _blocks_of(tree, RESOURCES_TIER):
        origin = server.settings.origin
        reference = node_of({"type": RESOURCES_TIER, "name": name}, origin)
        yield f"{name}_agent", _Agent("", Node({RESOURCES_SERVER: reference}, origin))


def _alias_of(agent: str, origin: Origin) -> Node:
    """Return a block that defines an alias of an agent. With it, rows may use the name of the replaced agent."""
    reference = {"entrypoint": "app.py", AGENT_SERVER: {"type": AGENT_TIER, "name": agent}}
    return node_of({ENVIRONMENT_SERVERS: {LEGACY_AGENT: reference}}, origin)


def _name(name: str, old: _Agent, new: _Agent, tree: Node) -> str:
    """Return a free name for the new agent, such as `mcqa_harness_agent` in place of `mcqa_simple_agent`."""
    folder = Path(new.implementation).name
    kinds = (Path(old.implementation).name, "agent")
    stem = next((name.removesuffix(kind).rstrip("_-") for kind in kinds if kind and name.endswith(kind)), name)
    short = "_".join(filter(None, (stem, folder)))
    names = (short, f"{name}_{folder}", *(f"{name}_{folder}_{number}" for number in range(2, len(tree.mapping) + 3)))
    return next(each for each in names if _is_free(each, new, tree))


def _is_free(name: str, agent: _Agent, tree: Node) -> bool:
    """Return whether a name is unused, or names a block of the same agent folder without an environment."""
    if name not in tree.mapping:
        return True
    known = dict(_blocks_of(tree, AGENT_TIER)).get(name)
    return known is not None and known.implementation == agent.implementation and not known.environment


def _check_not_typed(name: str, old: _Agent, new: str) -> None:
    """Raise ConfigError if the command line changes a setting of a replaced agent, because it would have no effect."""
    for key, node in old.settings.without(*OF_THE_ENVIRONMENT).mapping.items():
        typed = next((each.origin for _, each in walk(node) if is_typed(each.origin)), None)
        if typed and name != new:
            raise ConfigError(
                f"{typed}: {name}.{key} would be ignored, because {AGENT_CONFIG} replaces {name} with {new}. Change a "
                f"setting of {new} instead."
            )


def _joined(known: Node | None, agent: _Agent, old: _Agent, *, is_flavor: bool) -> Node:
    """Return the block of the new agent with the environment of the old agent.

    If a block with the new name already exists (`known`), its values have priority. If `is_flavor`, the new agent is a
    flavor of the agent in that block, so that only values from the command line have priority.
    """
    kept = {str(key): node for key, node in old.settings.mapping.items() if key in OF_THE_ENVIRONMENT}
    settings = agent.settings.updated(**kept)
    before = dict(_blocks_of(Node({"": known}, known.origin), AGENT_TIER)).get("") if known else None
    if before is not None:
        settings = merge(settings, _typed(before.settings) if is_flavor else before.settings)
        if before.settings is not old.settings and DATASETS in kept and DATASETS in before.settings.mapping:
            settings = settings.updated(datasets=_all_datasets(before.settings.mapping[DATASETS], kept[DATASETS]))
    return _Agent(agent.implementation, settings).block(old.settings.origin)


def _typed(node: Node) -> Node:
    """Return only the entries of a tree that the command line sets."""
    if not node.mapping:
        return node
    entries = {
        key: _typed(child)
        for key, child in node.mapping.items()
        if any(is_typed(each.origin) for _, each in walk(child))
    }
    return Node(entries, node.origin)


def _all_datasets(own: Node, others: Node) -> Node:
    """Return the datasets of `own`, and those of `others` whose type and file `own` does not contain."""
    if not isinstance(own.value, list) or not isinstance(others.value, list):
        return own
    known = {_identity(each) for each in own.value}
    return Node([*own.value, *(each for each in others.value if _identity(each) not in known)], own.origin)


def _identity(dataset: Node) -> tuple[object, ...]:
    return tuple(dataset.mapping[key].value for key in ("type", "jsonl_fpath") if key in dataset.mapping)


def _is_reference(node: Node) -> bool:
    return {"type", "name"} <= node.mapping.keys() and node.mapping["type"].value in SERVER_TYPES


def _referring(node: Node, replaced: Mapping[str, str]) -> Node:
    """Return the tree, with each reference to a replaced agent changed to the agent that replaces it."""
    if _is_reference(node) and node.mapping["type"].value == AGENT_TIER:
        name = node.mapping["name"]
        return node.updated(name=Node(replaced.get(str(name.value), name.value), name.origin))
    if isinstance(node.value, dict):
        return Node({key: _referring(child, replaced) for key, child in node.value.items()}, node.origin)
    if isinstance(node.value, list):
        return Node([_referring(item, replaced) for item in node.value], node.origin)
    return node
