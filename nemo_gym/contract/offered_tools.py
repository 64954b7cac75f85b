"""The tools that agents offer to the model if a row lists none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nemo_gym.config.models import RunConfig
from nemo_gym.contract.environment import importing
from nemo_gym.contract.schema import class_of
from nemo_gym.errors import UserError
from nemo_gym.jsonl import JsonObject
from nemo_gym.servers.conversing import ConversingAgent
from nemo_gym.servers.resources import listed_tools
from nemo_gym.testing import connected_server


def tools_by_agent(
    run: RunConfig, agents: Iterable[str], notice: Callable[[str], None]
) -> dict[str, list[JsonObject]]:
    """Return the tools of each agent's resources server, as a request lists them. Agents without tools are left out.

    If a folder cannot be imported, pass the reason to `notice`. Tools that differ between sessions are not known.
    """
    found: dict[str, list[JsonObject]] = {}
    for name in agents:
        try:
            if tools := _tools_of(run, name):
                found[name] = tools
        except UserError as error:
            notice(f"note: the rows of {name} get no list of tools ({str(error).rstrip('.')})")
    return found


def _tools_of(run: RunConfig, name: str) -> list[JsonObject]:
    agent = run.server(name)
    server = run.servers.get(agent.referred("resources_server") or "")
    if server is None or not issubclass(class_of(run, agent), ConversingAgent):
        return []
    with importing(server.folder, "created"):
        settings: Mapping[str, object] = {"name": server.name, **server.settings}
        return [dict(each.definition) for each in listed_tools(connected_server(class_of(run, server), settings))]
