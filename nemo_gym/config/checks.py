"""Checks on the configuration as a whole, such as unset values and dangling references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nemo_gym.config.explain import place_of
from nemo_gym.config.interpolation import Unresolved
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.settings import AGENT_TIER, POLICY_MODEL, SERVER_TYPES, flag_of
from nemo_gym.config.sources import EnvYaml
from nemo_gym.config.tree import Node, dotted, walk
from nemo_gym.errors import (
    ConfigInterpolationError,
    ConfigMissingValuesError,
    NoServerInstancesError,
    ServerRefNotFoundError,
)
from nemo_gym.text import ADD_A_FILE, closest, did_you_mean_or_all

_EXAMPLES = {
    "policy_base_url": "http://127.0.0.1:8000/v1",
    "policy_api_key": "EMPTY",
    "policy_model_name": "the-models-name",
}


def check_nothing_unset(tree: Node) -> None:
    """Raise a ConfigMissingValuesError that lists every `???` in the tree."""
    unset = [(dotted(path), node.origin) for path, node in walk(tree) if node.is_unset]
    if not unset:
        return
    flags = " ".join(f"{flag_of(key)} VALUE" for key, _ in unset)
    if len(unset) == 1:
        ((key, origin),) = unset
        raise ConfigMissingValuesError(
            f"{origin}: {key} has no value (it is ???). Set it there, or pass {flags} on the command line."
        )
    lines = "\n".join(f"  {origin}: {key}" for key, origin in unset)
    raise ConfigMissingValuesError(
        f"{len(unset)} keys have no value (they are ???). Set them at these places, or pass {flags} on the command "
        f"line:\n{lines}"
    )


def check_all_resolved(unresolved: Sequence[Unresolved], env: EnvYaml) -> None:
    """Raise a ConfigInterpolationError that lists every unresolved value and how to define it."""
    if not unresolved:
        return
    once: dict[str, Unresolved] = {}
    for one in unresolved:
        once.setdefault(one.undefined or one.problem, one)
    problems = [one.problem for one in once.values()]
    undefined = [one.undefined for one in once.values() if one.undefined]
    separator = "\n" if len(problems) > 1 else " "
    raise ConfigInterpolationError("\n".join(problems) + (separator + _advice(undefined, env) if undefined else ""))


def check_variables(servers: Iterable[ServerConfig]) -> None:
    """Raise a ConfigInterpolationError that lists every unset environment variable that these servers read."""
    if problems := [problem for server in servers for problem in server.unset_variables]:
        raise ConfigInterpolationError("\n".join(problems))


def _advice(undefined: Sequence[str], env: EnvYaml) -> str:
    lines = " and ".join(f"`{key}: {_EXAMPLES.get(key, 'VALUE')}`" for key in undefined)
    flags = " ".join(f"{flag_of(key)} VALUE" for key in undefined)
    if env.path:
        return f"Add {lines} to {env.path}, or pass {flags} on the command line."
    if not env.searched:
        return f"env.yaml was not read. Pass {flags} on the command line."
    searched = ", ".join(str(place.parent) for place in env.searched)
    return (
        f"env.yaml was not found (looked in {searched}). Create one that contains {lines}, or pass {flags} on the "
        "command line."
    )


def check_some_server(servers: Mapping[str, ServerConfig], files: Sequence[str]) -> None:
    """Raise NoServerInstancesError if `servers` is empty."""
    if servers:
        return
    if not files:
        raise NoServerInstancesError(
            "No configuration file was given. Pass --config path/to/config.yaml, or a config by name, such "
            "as --benchmark NAME or --resources-server NAME."
        )
    raise NoServerInstancesError(
        f"{', '.join(files)}: no server is defined there. Define one as `name: {{resources_servers: {{folder: "
        "{entrypoint: app.py}}}`, or the same with responses_api_agents or responses_api_models."
    )


def aliases_of(blocks: Mapping[str, Node], servers: Mapping[str, ServerConfig]) -> dict[str, str]:
    """Return the name of the agent for each alias. `blocks` are the `environment_servers` blocks by name.

    Skip blocks that do not refer to an agent. Raise ServerRefNotFoundError if a block refers to an unknown agent.
    """
    named = {
        name: node.mapping["agent_server"].mapping["name"]
        for name, node in blocks.items()
        if "agent_server" in node.mapping and "name" in node.mapping["agent_server"].mapping
    }
    found: dict[str, str] = {}
    for name, target in named.items():
        agent, seen = str(target.value), {name}
        while agent in named and agent not in servers and agent not in seen:
            seen.add(agent)
            agent = str(named[agent].value)
        if agent not in servers or servers[agent].type != AGENT_TIER:
            agents = [server.name for server in servers.values() if server.type == AGENT_TIER]
            raise ServerRefNotFoundError(
                f"{target.origin}: {name}.environment_servers refers to the agent '{target.value}', which is not "
                "defined in any file."
                f"{did_you_mean_or_all(str(target.value), agents, 'agents', if_none=ADD_A_FILE)}"
            )
        found[name] = agent
    return found


def check_references(servers: Mapping[str, ServerConfig], aliases: Mapping[str, str]) -> None:
    """Raise ServerRefNotFoundError if a `{type, name}` reference does not match a server of that type.

    Only references directly in a server's block or in a judge's block are checked. A reference in a deeper setting may
    name a missing server, because a folder may list servers that it calls only if the run has them.
    """
    known: dict[str, list[str]] = {
        str(tier): [server.name for server in servers.values() if server.type == tier] for tier in SERVER_TYPES
    }
    known[AGENT_TIER] += aliases
    for server in servers.values():
        for path, reference in _references(server.settings, ()):
            tier, name = reference["type"], reference["name"]
            if name not in known[tier] and _must_exist(server.settings, path):
                place = place_of((*path, "name"), server.origins)
                key = ".".join((server.name, server.type, server.implementation, *path))
                raise ServerRefNotFoundError(f"{place}: {key} refers to {_dangling(tier, name, known)}")


def references_of(server: ServerConfig) -> set[str]:
    """Return the names of all servers to which `server` refers, even if the run does not have them."""
    return {reference["name"] for _, reference in _references(server.settings, ())}


def called_by(server: ServerConfig, run: RunConfig) -> list[ServerConfig]:
    """Return the run's servers that `server` refers to, sorted by name."""
    names = {run.aliases.get(name, name) for name in references_of(server)}
    return [run.servers[name] for name in sorted(names) if name in run.servers]


def with_only_agent(run: RunConfig, name: str) -> RunConfig:
    """Return the run without its other agents, and without the servers that only those call.

    Raise ServerRefNotFoundError if the run does not have an agent with this name or alias.
    """
    if name not in run.agent_names:
        hint = did_you_mean_or_all(name, run.agent_names, "agents", if_none=ADD_A_FILE)
        raise ServerRefNotFoundError(f"Agent '{name}' is not in this configuration.{hint}")
    agent = run.server(name)
    of_others = with_called([each for each in run.servers_of(AGENT_TIER) if each is not agent], run)
    return run.with_servers(
        with_called([agent, *(each for each in run.servers.values() if each.name not in of_others)], run)
    )


def with_called(callers: Iterable[ServerConfig], run: RunConfig) -> dict[str, ServerConfig]:
    """Return these servers and all that they call directly or through others, in the order of the run."""
    found, waiting = set[str](), list(callers)
    while waiting:
        server = waiting.pop()
        if server.name not in found:
            found.add(server.name)
            waiting += called_by(server, run)
    return {name: server for name, server in run.servers.items() if name in found}


def _must_exist(settings: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    judge = settings[path[0]] if len(path) == 2 else None
    return len(path) == 1 or (isinstance(judge, dict) and {"prompt", "labels"} <= judge.keys())


def _references(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    if isinstance(value, dict):
        if value.get("type") in SERVER_TYPES and isinstance(value.get("name"), str):
            yield path, value
        for key, child in value.items():
            yield from _references(child, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*path, str(index)))


def _dangling(tier: str, name: str, known: Mapping[str, Sequence[str]]) -> str:
    elsewhere = next((other for other, names in known.items() if name in names), None)
    if elsewhere:
        return f"'{name}' as one of the {tier}, but '{name}' is one of the {elsewhere}. Correct the type or the name."
    text = f"'{name}', which is not defined in any file."
    if name == POLICY_MODEL and not closest(name, known[tier]):
        return (
            f"{text} Add a model, such as --model-type openai_model or --model-type sample_model, or a configuration "
            "file that defines one."
        )
    return text + did_you_mean_or_all(name, known[tier], tier, if_none=ADD_A_FILE)
