"""An Aviary environment as its agent sees it: seed, steps, verify, close."""

from collections.abc import Awaitable
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from nemo_gym import (
    AggregateMetrics,
    AggregateMetricsRequest,
    EnvironmentFailed,
    RolloutError,
    ServerCallError,
    ServerClient,
    failure_of_call,
    failure_of_reply,
    get_response_json,
    grace_period,
)

Item = dict[str, Any]

CLOSE_TIMEOUT_S = 5.0
OF_A_TURN = {"message", "function_call"}
OF_A_CALL = ("type", "id", "call_id", "name", "arguments", "status", "role", "content")
"""What a step is told of each item: not the tokens that it was sampled as, which may be many."""


class Begun(BaseModel):
    """An environment that was opened, and how it begins."""

    env_id: str
    obs: list[Item]
    tools: list[Item]


class Step(BaseModel):
    """What a turn of the model has led to."""

    obs: list[Item] = Field(default_factory=list)
    reward: float
    done: bool


class Episode:
    """One rollout's environment on a resources server; both its id and the session's cookie lead to it."""

    def __init__(self, client: ServerClient, server: str, cookies: dict[str, str]) -> None:
        self._client = client
        self._server = server
        self._cookies = cookies
        self._env_id = ""

    async def seed(self, row: dict[str, Any]) -> Begun:
        """Open the environment of a row. Raises `EnvironmentFailed`, as do step and verify."""
        begun: Begun = await self._read("/seed_session", row, Begun)
        self._env_id = begun.env_id
        return begun

    async def step(self, turn: list[Item]) -> Step:
        """Let one turn of the model have its effect."""
        action = [
            {name: item[name] for name in OF_A_CALL if name in item} for item in turn if item["type"] in OF_A_TURN
        ]
        step: Step = await self._read("/step", {"env_id": self._env_id, "action": action}, Step)
        return step

    async def verify(self, answered: dict[str, Any]) -> bytes:
        """The graded row, as the server answers it."""
        reply = await self._call("/verify", answered)
        body: bytes = reply.body
        return body

    async def close(self) -> None:
        """Let the server forget the environment."""
        closing = {"env_id": self._env_id}
        try:
            with grace_period(CLOSE_TIMEOUT_S):
                await self._client.post(self._server, "/close", json=closing, cookies=self._cookies)
        except (ServerCallError, RolloutError):
            # The server forgets an idle environment by itself; the rollout is what matters.
            return

    async def _read(self, path: str, body: dict[str, Any], kind: Any) -> Any:
        reply = await self._call(path, body)
        try:
            return kind.model_validate_json(await reply.read())
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "the answer"
            raise EnvironmentFailed(
                f"{self._server}: {path} answered something else than a {kind.__name__}: {where}: {problem['msg']}",
                server=self._server,
            ) from error

    async def _call(self, path: str, body: dict[str, Any]) -> Any:
        reply = await _answer(
            self._client.post(self._server, path, json=body, cookies=self._cookies), self._server, path
        )
        self._cookies |= {name: morsel.coded_value for name, morsel in reply.cookies.items()}
        return reply


async def metrics_of(client: ServerClient, server: str, body: AggregateMetricsRequest) -> AggregateMetrics:
    """What a resources server makes of all graded rollouts. Raises `EnvironmentFailed`."""
    path = "/aggregate_metrics"
    reply = await _answer(client.post(server, path, json=body.model_dump()), server, path)
    return AggregateMetrics.model_validate(await get_response_json(reply))


async def _answer(call: Awaitable[Any], server: str, path: str) -> Any:
    try:
        reply = await call
    except ServerCallError as error:
        raise failure_of_call(error, server=server, otherwise=EnvironmentFailed) from error
    if not reply.ok:
        raise failure_of_reply(
            reply.status, await reply.read(), server=server, during=path, otherwise=EnvironmentFailed
        )
    return reply
