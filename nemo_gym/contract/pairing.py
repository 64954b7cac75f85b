"""Find out which agents fit an environment, and why others do not, by comparing classes, settings and example rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastapi.routing import APIRoute
from pydantic import BaseModel

from nemo_gym.config.allowed_pairings import AGENT_SERVER, ALLOWED_AGENTS, RESOURCES_SERVER, exclusion, players
from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.pairing import AGENT_CONFIG
from nemo_gym.config.settings import AGENT_TIER, BaseResponsesAPIAgentConfig
from nemo_gym.config.without_model import load_for_metrics
from nemo_gym.contract.environment import Environment, importing, open_server
from nemo_gym.contract.schema import bodies_of_agent, class_of, tools_of
from nemo_gym.data.catalog import Component
from nemo_gym.errors import ConfigError, DataError, LaunchError
from nemo_gym.schemas.rollout import BaseRunRequest
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.tools.handlers import is_class_of


class Fit(NamedTuple):
    """The result of checking an agent against an environment."""

    agent: str
    is_own: bool
    """Whether the environment's own config uses this agent."""
    problems: list[str]
    """The reasons why the agent does not fit; empty if it fits."""


def fits(config: str, agents: list[Component]) -> list[Fit]:
    """Return for each of these agents, with its default config, whether it fits the environment of `config`."""
    run = load_for_metrics([config], [])
    own = {agent.implementation for agent, _ in players(run.servers)}
    return [Fit(each.name, each.name in own, _problems_of(config, each)) for each in agents]


def _problems_of(config: str, agent: Component) -> list[str]:
    file = f"{AGENT_TIER}/{agent.name}/configs/{agent.path.name}.yaml"
    if not (agent.path / "configs" / f"{agent.path.name}.yaml").is_file():
        return [f"{file} does not exist. Name another config of this agent with --agent-type {agent.name}/FLAVOR."]
    try:
        run = load_for_metrics([config], [f"++{AGENT_CONFIG}={file}", "++allow_unsupported_pairing=true"])
        return list(dict.fromkeys([*run.settings.unsupported_pairings, *(each.problem for each in _all_misfits(run))]))
    except (ConfigError, DataError, LaunchError) as error:
        return [str(error)]


def misfits(run: RunConfig) -> list[str]:
    """Return the reasons why agents that the command line has chosen do not fit their environments.

    Raise `LaunchError` if a class cannot be imported or a server cannot be created, `DataError` if the example rows
    are missing.
    """
    return [f"{each.agent}: {each.problem}" for each in _all_misfits(run)]


class _Misfit(NamedTuple):
    agent: str
    problem: str


def _all_misfits(run: RunConfig) -> Iterator[_Misfit]:
    # Check only agents that the command line has chosen. The environment's author has chosen the others.
    added = ((agent, server) for agent, server in players(run.servers) if agent.name in run.paired_agents)
    for agent, server in added:
        with open_server(run, server, server.folder) as environment, importing(server.folder, "checked"):
            yield from (_Misfit(agent.name, problem) for problem in _misfits(environment, server, agent))


def _misfits(environment: Environment, server: ServerConfig, agent: ServerConfig) -> Iterator[str]:
    kind = class_of(environment.run, agent)
    config = _config_class(kind)
    if RESOURCES_SERVER not in config.model_fields or AGENT_SERVER in config.model_fields:
        yield "it does not play in an environment itself, but passes rows on to other agents."
        return
    yield from _declared_exclusion(environment.server_class, server, agent)
    given = {*agent.settings, *BaseResponsesAPIAgentConfig.model_fields}
    required = [name for name, info in config.model_fields.items() if info.is_required() and name not in given]
    if required:
        yield f"its block must set {', '.join(required)}."
    yield from _other_routes(environment, kind)
    missing = [name for name in _required_in_rows(kind) if any(name not in row for row in environment.rows)]
    if missing:
        yield f"rows must have {', '.join(missing)}, but not all examples of {server.name} do."
    is_hidden = getattr(kind, "TOOLS_OVER_MCP", False) and not server.settings.get("expose_tools_over_mcp")
    if is_hidden and (tools := tools_of(environment.server(), environment.rows)):
        yield (
            f"it reaches tools over MCP only, and {server.name} does not expose {', '.join(sorted(tools))} over MCP. "
            f"Set --{server.name}.resources_servers.{server.implementation}.expose_tools_over_mcp true."
        )


def _declared_exclusion(kind: type[SimpleServer], server: ServerConfig, agent: ServerConfig) -> list[str]:
    """Return a message if the config class of a resources server excludes an agent.

    Config classes that were written for release 0.7 list the allowed agents. A list in the config takes precedence.
    """
    allowed = getattr(_config_class(kind), ALLOWED_AGENTS, None)
    if not isinstance(allowed, list | tuple | set | frozenset) or ALLOWED_AGENTS in server.settings:
        return []
    return exclusion(f"{_config_class(kind).__name__}.{ALLOWED_AGENTS}", sorted(map(str, allowed)), agent)


def _other_routes(environment: Environment, kind: type[SimpleServer]) -> Iterator[str]:
    """Yield a message if the agent and the environment require different routes for the calls of an episode."""
    called: tuple[str, ...] | None = getattr(kind, "EPISODE_ROUTES", None)
    if called is None:
        return
    played: tuple[str, ...] = getattr(environment.server_class, "EPISODE_ROUTES", ())
    if played and set(played) != set(called):
        yield f"{environment.name} is played with {' and '.join(played)}, which this agent does not call."
        return
    routes = environment.server().setup_webserver().routes
    known = {route.path for route in routes if isinstance(route, APIRoute)}
    if absent := [path for path in called if path not in known]:
        yield f"it plays with {' and '.join(called)}, but {environment.name} lacks {' and '.join(absent)}."


def _config_class(kind: type[SimpleServer]) -> type[BaseModel]:
    annotation = kind.model_fields["config"].annotation
    return annotation if is_class_of(annotation, BaseModel) else BaseModel


def _required_in_rows(kind: type[SimpleServer]) -> list[str]:
    """Return the row fields that an agent's `run` requires besides `responses_create_params`."""
    required = (
        name for body in bodies_of_agent(kind) for name, info in body.model_fields.items() if info.is_required()
    )
    return [name for name in dict.fromkeys(required) if name not in BaseRunRequest.model_fields]
