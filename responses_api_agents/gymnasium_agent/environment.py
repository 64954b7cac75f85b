"""The client for one game in an environment with the routes `/reset` and `/step`."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError, field_validator

from nemo_gym import (
    STEP_REQUEST_ID_KEY,
    BaseResetResponse,
    BaseStepResponse,
    EnvironmentFailed,
    RolloutError,
    ServerCallError,
    ServerClient,
    grace_period,
    reply_to,
)
from nemo_gym.jsonl import JsonObject

AnswerT = TypeVar("AnswerT", bound=BaseModel)

STEP_PAUSES_S = (0.1, 0.5, 2.0)
"""Seconds before each retry of a step whose reply was lost, if the environment detects repeated steps."""


class Step(BaseStepResponse):
    """The reply to `/step`. Its reward is finite, and its tool outputs have the documented form."""

    reward: float = Field(default=0.0, allow_inf_nan=False)

    @field_validator("info")
    @classmethod
    def _has_tool_outputs(cls, info: JsonObject) -> JsonObject:
        outputs = info.get("tool_outputs") or []
        if not isinstance(outputs, list) or not all(
            isinstance(each, dict) and {"call_id", "output"} <= each.keys() for each in outputs
        ):
            raise ValueError("tool_outputs must be a list of {call_id, output}")
        return info


class Game:
    """One game on a resources server, identified by the session's cookie."""

    def __init__(self, client: ServerClient, server: str, row: JsonObject, cookies: dict[str, str]) -> None:
        self._client = client
        self._server = server
        self._row = row
        self._cookies = cookies
        self._knows_steps_again = False
        self._can_be_closed = False

    async def reset(self) -> BaseResetResponse:
        """Start the game of the row. Like `step`, raise `EnvironmentFailed` if the call fails."""
        begun = await self._answer("/reset", self._post("/reset", self._row), BaseResetResponse)
        self._knows_steps_again = bool(begun.info.get("supports_step_idempotency"))
        self._can_be_closed = bool(begun.info.get("supports_explicit_close"))
        return begun

    async def step(self, response: JsonObject) -> BaseStepResponse:
        """Send one turn of the model to the environment."""
        body = {**self._row, "response": response}
        if self._knows_steps_again:
            body[STEP_REQUEST_ID_KEY] = uuid4().hex
        return await self._answer("/step", self._post_step(body), Step)

    async def close(self) -> None:
        """Close the game if the environment supports that. Ignore failures."""
        if not self._can_be_closed:
            return
        # Do not fail the rollout, because the server drops idle games by itself.
        with suppress(ServerCallError, RolloutError), grace_period():
            await self._post("/close", {})

    async def _post_step(self, body: JsonObject) -> object:
        for pause_s in STEP_PAUSES_S if self._knows_steps_again else ():
            try:
                return await self._post("/step", body)
            except ServerCallError:
                await asyncio.sleep(pause_s)
        return await self._post("/step", body)

    async def _post(self, path: str, body: JsonObject) -> object:
        reply = await self._client.post(self._server, path, json=body, cookies=self._cookies)
        self._cookies |= reply.cookie_values
        return reply

    async def _answer(self, path: str, call: Awaitable[object], kind: type[AnswerT]) -> AnswerT:
        reply = await reply_to(call, server=self._server, during=path, otherwise=EnvironmentFailed)
        try:
            return kind.model_validate_json(await reply.read())
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "the reply"
            raise EnvironmentFailed(
                f"{self._server}: the reply of {path} is not valid: {where}: {problem['msg']}", server=self._server
            ) from error
