"""Compare the agents and models of a configuration with those that its environments allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.settings import AGENT_TIER, DUMMY_MODEL
from nemo_gym.errors import ConfigError

RESOURCES_SERVER, MODEL_SERVER, AGENT_SERVER = "resources_server", "model_server", "agent_server"
ALLOWED_AGENTS, ALLOWED_MODEL_TYPES = "allowed_agents", "allowed_model_types"


def players(servers: Mapping[str, ServerConfig]) -> Iterator[tuple[ServerConfig, ServerConfig]]:
    """Yield each agent with its resources server. Skip agents that delegate to an `agent_server`."""
    for agent in servers.values():
        environment = servers.get(agent.referred(RESOURCES_SERVER))
        if agent.type == AGENT_TIER and environment is not None and AGENT_SERVER not in agent.settings:
            yield agent, environment


def unsupported_pairings(servers: Mapping[str, ServerConfig]) -> list[str]:
    """Return a message for each agent or model that the block of the environment or of the agent does not allow."""
    found = list[str]()
    for agent, environment in players(servers):
        model = servers.get(agent.referred(MODEL_SERVER))
        for block in (environment, agent):
            found += not_allowed(block, ALLOWED_AGENTS, agent)
            # Skip the dummy model, because the commands that use it never call a model.
            if model is not None and model.implementation != DUMMY_MODEL:
                found += not_allowed(block, ALLOWED_MODEL_TYPES, model)
    return list(dict.fromkeys(found))


def not_allowed(block: ServerConfig, key: str, server: ServerConfig) -> list[str]:
    """Return a message if the list `key` of a block does not contain a server's folder.

    Raise ConfigError if the value of `key` is not a list of folder names.
    """
    allowed = block.settings.get(key)
    if allowed is None:
        return []
    place = f"{block.origins.get(key, block.origins[''])}: {block.name}.{key}"
    if not isinstance(allowed, list) or not all(isinstance(each, str) for each in allowed):
        raise ConfigError(f"{place} must be a list of folder names, such as [{server.implementation}].")
    return exclusion(place, allowed, server)


def exclusion(place: str, allowed: Sequence[str], server: ServerConfig) -> list[str]:
    """Return a list with a message if a server's folder is not in `allowed`, or else an empty list."""
    if server.implementation in allowed:
        return []
    return [f"{place} allows only {', '.join(allowed) or 'none'}, but {server.name} is {server.implementation}."]


def accepted(run: RunConfig, found: Sequence[str]) -> RunConfig:
    """Return a copy of the run that lists these unsupported pairings in its configuration and notes.

    Raise ConfigError if `found` is not empty and the run does not set `allow_unsupported_pairing`.
    """
    if not found:
        return run
    if not run.settings.allow_unsupported_pairing:
        raise ConfigError(
            "\n".join(found)
            + "\nChoose another agent or model, or run this pairing anyway with --allow-unsupported-pairing."
        )
    noted = {"unsupported_pairings": list(dict.fromkeys([*run.settings.unsupported_pairings, *found]))}
    notes = [f"unsupported pairing: {text}" for text in found]
    return run.model_copy(
        update={
            "settings": run.settings.model_copy(update=noted),
            "plain": {**run.plain, **noted},
            "raw": {**run.raw, **noted},
            "notes": (*run.notes, *notes),
        }
    )
