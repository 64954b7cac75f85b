"""A client that starts, steps, grades and closes an Aviary environment."""

from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from nemo_gym import (
    EnvironmentFailed,
    RolloutError,
    ServerCallError,
    ServerClient,
    grace_period,
    reply_to,
)
from nemo_gym.jsonl import JsonObject

AnswerT = TypeVar("AnswerT", bound=BaseModel)

OF_A_TURN = {"message", "function_call"}
OF_A_CALL = ("type", "id", "call_id", "name", "arguments", "status", "role", "content")
"""The fields of an item that are sent to `/step`. Token ids are left out, because there may be many."""


class Begun(BaseModel):
    """The reply to `/seed_session`: a new environment and its first observation."""

    env_id: str
    obs: list[JsonObject]
    tools: list[JsonObject]


class Step(BaseModel):
    """The reply to `/step`: the result of one turn of the model."""

    obs: list[JsonObject] = Field(default_factory=list)
    reward: float
    done: bool


class Episode:
    """One rollout's environment on a resources server, identified by its id and the session's cookie."""

    def __init__(self, client: ServerClient, server: str, cookies: dict[str, str]) -> None:
        self._client = client
        self._server = server
        self._cookies = cookies
        self._env_id = ""

    async def seed(self, row: JsonObject) -> Begun:
        """Open the environment of a row. Like `step` and `verify`, raise `EnvironmentFailed` if the call fails."""
        begun = await self._answer("/seed_session", row, Begun)
        self._env_id = begun.env_id
        return begun

    async def step(self, turn: list[JsonObject]) -> Step:
        """Send one turn of the model to the environment."""
        action = [
            {name: item[name] for name in OF_A_CALL if name in item} for item in turn if item["type"] in OF_A_TURN
        ]
        return await self._answer("/step", {"env_id": self._env_id, "action": action}, Step)

    async def verify(self, answered: JsonObject) -> bytes:
        """Return the graded row as the server's unparsed JSON."""
        return await self._call("/verify", answered)

    async def close(self) -> None:
        """Close the environment on the server. Ignore failures."""
        closing = {"env_id": self._env_id}
        # Do not fail the rollout, because the server drops idle environments by itself.
        with suppress(ServerCallError, RolloutError), grace_period():
            await self._client.post(self._server, "/close", json=closing, cookies=self._cookies)

    async def _answer(self, path: str, body: JsonObject, kind: type[AnswerT]) -> AnswerT:
        reply = await self._call(path, body)
        try:
            return kind.model_validate_json(reply)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "the reply"
            raise EnvironmentFailed(
                f"{self._server}: the reply of {path} is not valid: {where}: {problem['msg']}", server=self._server
            ) from error

    async def _call(self, path: str, body: JsonObject) -> bytes:
        call = self._client.post(self._server, path, json=body, cookies=self._cookies)
        reply = await reply_to(call, server=self._server, during=path, otherwise=EnvironmentFailed)
        self._cookies |= reply.cookie_values
        written: bytes = await reply.read()
        return written
