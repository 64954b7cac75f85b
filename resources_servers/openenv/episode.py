"""One episode of a rollout: its session on the OpenEnv server, its tools, and the rewards of its steps."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from pydantic import Field

from nemo_gym import EnvironmentFailed, InvalidTask, OutOfTurn, Overloaded, SessionState
from nemo_gym.jsonl import JsonObject, dump_json, loads_exact
from resources_servers.openenv.link import AtCapacity, Link, Observed, Rejected, Server

ACT = "act"
"""The tool for an environment that does not have tools of its own. `step` is a route of this server."""
ACTION = "action"
MCP_KINDS = ("list_tools", "call_tool")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
OVER = "The episode is over. This call has no effect."


class EnvTool(NamedTuple):
    """A tool of an environment, and how to turn its arguments into an action."""

    definition: JsonObject
    called: str | None = None
    """The environment's own name of the tool. None if the arguments are the action itself."""
    is_wrapped: bool = False
    """Whether the action is the argument `action`, because its schema is not that of an object."""

    def action(self, arguments: JsonObject) -> JsonObject:
        if self.called is not None:
            return {"type": "call_tool", "tool_name": self.called, "arguments": arguments}
        action = arguments.get(ACTION) if self.is_wrapped else arguments
        return action if isinstance(action, dict) else {}


class Episode(SessionState):
    """The state of a rollout."""

    link: Link | None = None
    beginning: str = ""
    """The first observation."""
    tools: dict[str, EnvTool] = Field(default_factory=dict)
    steps: int = 0
    """The number of calls so far, including those that the environment rejected."""
    rewards: list[float] = Field(default_factory=list)
    has_begun: bool = False
    is_over: bool = False
    is_lost: bool = False
    """Whether a step has not been answered. It may have had an effect, so the rewards are incomplete."""
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)

    async def begin(self, server: Server, reset: JsonObject, schema: object, capacity_wait_s: float) -> None:
        """Open a session and reset it. Wait for a free session if the server is at capacity.

        Raise `Overloaded` if no session is free within `capacity_wait_s`, `InvalidTask` if the environment rejects
        the row's `reset`, and `EnvironmentFailed` for any other fault.
        """
        try:
            first = await self._reset(server, reset, capacity_wait_s)
        except Rejected as error:
            kind = InvalidTask if error.code == "VALIDATION_ERROR" else EnvironmentFailed
            raise kind(f"the OpenEnv server at {server.address.shown}: reset: {error.code}: {error}") from error
        assert self.link is not None
        try:
            self.tools = await _tools_of(self.link, schema)
        except (Rejected, AttributeError, LookupError, TypeError) as error:
            raise server.failed(f"its action schema or its list of tools is invalid: {error!s:.200}") from error
        self.beginning, self.is_over, self.has_begun = text_of(first), first.done, True

    async def call(self, name: str, arguments: str) -> Any:
        """Step the environment with one call. Return the output for the model: text, or content parts.

        Raise `EnvironmentFailed` if the session is lost.
        """
        async with self.turn:
            if self.link is None or not self.has_begun:
                raise OutOfTurn("no episode is running in this session. POST /seed_session starts one")
            if self.is_over:
                return OVER
            self.steps += 1
            tool, given = self.tools.get(name), _object_in(arguments)
            if tool is None:
                return f"Error: unknown tool {name!r:.80}. The tools are: {', '.join(self.tools)}."
            if given is None:
                return "Error: the arguments are not a JSON object."
            try:
                self.is_lost = True
                observed = await self.link.ask("step", tool.action(given))
            except Rejected as error:
                self.is_lost = False
                return f"Error: {error}"
            self.is_lost = False
            if observed.reward is not None:
                self.rewards.append(observed.reward)
            self.is_over = observed.done
            return output_of(observed) if tool.called is not None else text_of(observed)

    def check_rewards(self) -> None:
        """Raise `EnvironmentFailed` if a step has not been answered, or if replies do not match the requests."""
        if self.link is not None and self.link.unsound is not None:
            raise self.link.unsound
        if self.is_lost:
            raise EnvironmentFailed(
                "the session on the OpenEnv server was lost during a step, so its reward is unknown"
            )

    async def close(self) -> None:
        """End the session on the OpenEnv server."""
        if self.link is not None:
            await self.link.close()

    async def _reset(self, server: Server, reset: JsonObject, capacity_wait_s: float) -> Observed:
        ends_at, pause_s = time.monotonic() + capacity_wait_s, FIRST_PAUSE_S
        while True:
            try:
                self.link = await Link.open(server)
                return await self.link.ask("reset", reset)
            except AtCapacity as error:
                await self.close()
                if time.monotonic() + pause_s > ends_at:
                    raise Overloaded(
                        f"the OpenEnv server at {server.address.shown} had no free session for {capacity_wait_s:g} s "
                        f"({error}). Lower num_samples_in_parallel, raise the server's max_concurrent_envs, or "
                        "raise capacity_wait_s",
                        tier="environment",
                    ) from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def text_of(observed: Observed) -> str:
    """Return an observation as JSON. Empty metadata is left out, and an empty observation is an empty text."""
    shown = {name: value for name, value in observed.observation.items() if name != "metadata" or value}
    return dump_json(shown).decode() if shown else ""


def output_of(observed: Observed) -> Any:
    """Return the output of a tool call: its text, or content parts if it has images."""
    result, error = observed.observation.get("result"), observed.observation.get("error")
    if error:
        return f"Error: {error.get('message') if isinstance(error, dict) else error}"
    contents = result.get("content") if isinstance(result, dict) else None
    if not isinstance(contents, list) or not all(isinstance(each, dict) for each in contents):
        return result if isinstance(result, str) else dump_json(result).decode()
    parts = [_part(each) for each in contents]
    is_error = isinstance(result, dict) and (result.get("is_error") or result.get("isError"))
    if all(part["type"] == "input_text" for part in parts):
        return "\n".join(["Error:"] * bool(is_error) + [part["text"] for part in parts])
    return parts


def is_mcp(action: Mapping[str, Any]) -> bool:
    """Return whether an environment takes the actions of MCP, judging by its action schema."""
    fields = action.get("properties") or {}
    kind = fields.get("type") or {}
    # A server of MCP tools may declare only the general action, which has nothing but metadata.
    return set(fields) == {"metadata"} or any(kind.get(key) in MCP_KINDS for key in ("const", "default"))


def act_tool(action: Mapping[str, Any]) -> EnvTool:
    """Return the tool whose arguments are an action with this JSON Schema."""
    is_wrapped = "properties" not in action
    if is_wrapped:
        fields = {ACTION: {key: value for key, value in action.items() if key != "$defs"}}
    else:
        fields = {name: schema for name, schema in action["properties"].items() if name != "metadata"}
    required = [ACTION] if is_wrapped else [name for name in action.get("required") or () if name in fields]
    parameters = {"type": "object", "properties": fields, "required": required}
    if "$defs" in action:
        parameters["$defs"] = action["$defs"]
    description = f"Act in the environment. {action.get('description') or ''}".strip()
    return EnvTool(_definition(ACT, description, parameters), None, is_wrapped)


async def _tools_of(link: Link, schema: Any) -> dict[str, EnvTool]:
    """Return the tools of an environment. Raise an error of Python's own if the schema or the list is invalid."""
    action = schema and schema["action"]
    if action and not is_mcp(action):
        return {ACT: act_tool(action)}
    try:
        listed = (await link.ask("step", {"type": "list_tools"})).observation["tools"]
    except Rejected:
        if not action:
            raise
        # Some environments have only one action, without arguments.
        return {ACT: act_tool(action)}
    tools: dict[str, EnvTool] = {}
    for each in listed:
        # Model endpoints accept only these characters in a name.
        name = re.sub(r"[^A-Za-z0-9_-]", "_", each["name"])[:64]
        if name in tools or not name:
            raise LookupError(f"two tools have the name {name!r}")
        parameters = {"type": "object", "properties": {}, **(each.get("input_schema") or {})}
        tools[name] = EnvTool(_definition(name, str(each.get("description") or ""), parameters), each["name"])
    if not tools:
        raise LookupError("no tools")
    return tools


def _definition(name: str, description: str, parameters: JsonObject) -> JsonObject:
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def _object_in(text: str) -> JsonObject | None:
    try:
        given = loads_exact(text or "{}")
        # Only this finds arguments that are nested too deeply to be sent.
        dump_json(given)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return given if isinstance(given, dict) else None


def _part(content: JsonObject) -> JsonObject:
    if content.get("type") == "image" and isinstance(content.get("data"), str):
        kind = content.get("mimeType") or "image/png"
        return {"type": "input_image", "detail": "auto", "image_url": f"data:{kind};base64,{content['data']}"}
    text = content.get("text")
    return {"type": "input_text", "text": text if isinstance(text, str) else dump_json(content).decode()}
