"""Environments with the interface of Gymnasium and GEM: `reset` and `step` with texts, for loops that expect one.

from nemo_gym import gym

with gym.make("resources_servers/blackjack") as env:
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("stand")
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

import orjson

from nemo_gym.calls.client import ServerClient, get_response_json
from nemo_gym.calls.problems import reply_to
from nemo_gym.context.deadline import deadline_in
from nemo_gym.dialects.chat import new_id
from nemo_gym.errors import EnvironmentFailed, RolloutError, ServerCallError, UsageError
from nemo_gym.harness.exchange import task_text
from nemo_gym.jsonl import JsonObject, read_rows
from nemo_gym.paths import find
from nemo_gym.schemas.items import FunctionToolCall, OutputItem, OutputMessage, OutputText
from nemo_gym.schemas.responses import Response
from nemo_gym.training.loop_thread import LoopThread
from nemo_gym.training.trl.episode import Episode
from nemo_gym.training.trl.server import NO_SUCH_ROUTE, OpenServer, running, started

Action = str | Mapping[str, Any]
"""A text, or a tool call as `{"name": …, "arguments": {…}}`."""
Step = tuple[str, float, bool, bool, JsonObject]
"""The observation, the reward, whether the episode has ended or was cut off, and further data."""


def make(
    source: str | Path,
    rows: Iterable[JsonObject] | None = None,
    *,
    server: str | None = None,
    overrides: Sequence[str] = (),
    call_timeout_s: float = 600.0,
    run_token: str | None = None,
) -> Env:
    """Return an environment of a folder, whose server is started, or of a run by the address of its head server.

    `rows` are its tasks, by default the examples of the folder. `server` selects one of several resources servers,
    `overrides` are config overrides as on the command line, and `call_timeout_s` limits each call.
    """
    is_address = str(source).startswith(("http://", "https://"))
    if not is_address and find(source, Path.exists) is None:
        raise UsageError(f"gym.make: the folder {source} does not exist. Correct its name.")
    known = list(rows) if rows is not None else [] if is_address else _examples_of(source)
    if not known:
        raise UsageError(f"gym.make: {source} has no data/example.jsonl. Pass the tasks as rows=.")
    opened = running(str(source), server, run_token) if is_address else started([source], server, overrides)
    return Env(opened, known, call_timeout_s)


def _examples_of(source: str | Path) -> list[JsonObject]:
    found = find(Path(source, "data/example.jsonl"), Path.is_file)
    return list(read_rows(found)) if found else []


class Env:
    """An environment for one episode at a time. Games are played by their own steps, other environments by tool calls.

    The last text of an environment without steps is its answer, which ends the episode with the verifier's reward. A
    failure of the environment raises `RolloutError`, and never becomes a reward.
    """

    def __init__(self, server: OpenServer, rows: Sequence[JsonObject], call_timeout_s: float) -> None:
        self._server, self._rows, self._call_timeout_s = server, rows, call_timeout_s
        self._tools: list[Any] | None = None
        """The tools that the server lists; None if it is a game, or before the first reset."""
        self._next = 0
        self._episode: _Played | None = None
        self._loop = LoopThread()
        self._loop.start()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, JsonObject]:
        """Begin an episode, and return the task as text and `{"row": …, "tools": […]}`.

        `options` may have a `row`, or the `index` of one. Otherwise, `seed` selects a row, or it is the next one.
        """
        self._server.check()
        given = options or {}
        if seed is not None:
            self._next = random.Random(seed).randrange(len(self._rows))
        index = given.get("index", self._next)
        self._next = (index + 1) % len(self._rows)
        row = given.get("row") or self._rows[index]
        return self._loop.result_of(self._begun(row))

    def step(self, action: Action) -> Step:
        """Take a turn, and return the observation, the reward, `terminated`, `truncated` and further data."""
        if self._episode is None:
            raise UsageError("step: the episode has ended or has not begun. Call reset() first.")
        taken = self._loop.result_of(self._episode.step(action))
        if taken[2] or taken[3]:
            self._loop.result_of(self._ended())
        return taken

    def close(self) -> None:
        """End the episode, and stop the servers that were started for this environment. A second call does nothing."""
        if self._loop.is_running:
            self._loop.result_of(self._ended())
            self._loop.result_of(self._server.client.aclose())
            self._loop.stop()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _begun(self, row: JsonObject) -> tuple[str, JsonObject]:
        await self._ended()
        client, name, params = self._server.client, self._server.name, row.get("responses_create_params", {})
        observation = None
        if self._tools is None:
            game = _Game(client, name, row, self._call_timeout_s)
            if (observation := await game.begin()) is None:
                with deadline_in(self._call_timeout_s):
                    self._tools = await self._server.listed_tools()
            else:
                self._episode = game
        tools = params.get("tools") or self._tools or []
        if observation is None:
            episode = Episode(client, name, row, tools, self._call_timeout_s)
            await episode.seed()
            self._episode = _Task(episode)
        return "\n\n".join(filter(None, (task_text(params), observation))), {"row": row, "tools": tools}

    async def _ended(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.close()


class _Played(Protocol):
    async def step(self, action: Action) -> Step: ...

    async def close(self) -> None: ...


class _Game:
    """An episode of a server with the routes `/reset` and `/step`."""

    def __init__(self, client: ServerClient, server: str, row: JsonObject, call_timeout_s: float) -> None:
        self._client, self._server, self._row, self._call_timeout_s = client, server, row, call_timeout_s
        self._cookies: dict[str, str] = {}

    async def begin(self) -> str | None:
        """Return the first observation, or None if the server has no steps."""
        begun = await self._post("/reset", self._row, tolerates=NO_SUCH_ROUTE)
        return None if begun is None else begun.get("observation") or ""

    async def step(self, action: Action) -> Step:
        found = await self._post("/step", {**self._row, "response": _turn_of(action).model_dump(mode="json")})
        assert found is not None
        info: JsonObject = found.get("info") or {}
        outputs = (str(each.get("output")) for each in info.get("tool_outputs") or ())
        text = "\n".join(filter(None, (*outputs, found.get("observation"))))
        return text, float(found["reward"]), bool(found["terminated"]), bool(found["truncated"]), info

    async def close(self) -> None:
        # Ignore failures, because the server removes idle games itself.
        with suppress(ServerCallError, RolloutError):
            await self._post("/close", {}, tolerates=NO_SUCH_ROUTE)

    async def _post(self, path: str, body: JsonObject, *, tolerates: Sequence[int] = ()) -> JsonObject | None:
        with deadline_in(self._call_timeout_s):
            call = self._client.post(self._server, path, json=body, cookies=self._cookies)
            reply = await reply_to(
                call, server=self._server, during=path, otherwise=EnvironmentFailed, tolerates=tuple(tolerates)
            )
            if not reply.ok:
                return None
            self._cookies |= reply.cookie_values
            answer: JsonObject = await get_response_json(reply)
            return answer


class _Task:
    """An episode of any other server: tool calls, and an answer that is verified."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self._said: list[Any] = []

    async def step(self, action: Action) -> Step:
        if not isinstance(action, str):
            name, arguments = action["name"], action.get("arguments") or {}
            output = await self.episode.call(name, arguments)
            call = {"function": {"name": name, "arguments": orjson.dumps(arguments).decode()}}
            self._said += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "name": name, "content": output},
            ]
            return output, 0.0, False, False, {}
        reward = await self.episode.verify([*self._said, {"role": "assistant", "content": action}])
        if self.episode.failure is not None:
            raise self.episode.failure
        if reward is None:
            raise EnvironmentFailed("the verifier returned no reward for this episode")
        return "", reward, True, False, {}

    async def close(self) -> None:
        await self.episode.close()


def _turn_of(action: Action) -> Response:
    """Return an action as the response of a model."""
    item: OutputItem
    if isinstance(action, str):
        item = OutputMessage(id=new_id("msg"), content=[OutputText(text=action, annotations=[])])
    else:
        arguments = orjson.dumps(action.get("arguments") or {}).decode()
        call_id = new_id("call")
        item = FunctionToolCall(id=call_id, call_id=call_id, name=action["name"], arguments=arguments)
    return Response(id=new_id("resp"), created_at=int(time.time()), model="gym", output=[item])
