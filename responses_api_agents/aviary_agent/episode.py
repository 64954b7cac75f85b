"""The client of an Aviary environment: seed, step, verify, close."""

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from nemo_gym import (
    AggregateMetrics,
    AggregateMetricsRequest,
    EnvironmentFailed,
    RolloutError,
    ServerCallError,
    ServerClient,
    get_response_json,
    grace_period,
    reply_to,
)

Item = dict[str, Any]

OF_A_TURN = {"message", "function_call"}
OF_A_CALL = ("type", "id", "call_id", "name", "arguments", "status", "role", "content")
"""The fields of an item that a step gets. Token ids are left out, because there may be many."""


class Begun(BaseModel):
    """The reply to `/seed_session`: a new environment and its first observation."""

    env_id: str
    obs: list[Item]
    tools: list[Item]


class Step(BaseModel):
    """The reply to `/step`: the result of one turn of the model."""

    obs: list[Item] = Field(default_factory=list)
    reward: float
    done: bool


class Episode:
    """One rollout's environment on a resources server, identified by its id and the session's cookie."""

    def __init__(self, client: ServerClient, server: str, cookies: dict[str, str]) -> None:
        self._client = client
        self._server = server
        self._cookies = cookies
        self._env_id = ""

    async def seed(self, row: dict[str, Any]) -> Begun:
        """Open the environment of a row. Like `step` and `verify`, raise `EnvironmentFailed` if the call fails."""
        begun: Begun = await self._read("/seed_session", row, Begun)
        self._env_id = begun.env_id
        return begun

    async def step(self, turn: list[Item]) -> Step:
        """Send one turn of the model to the environment."""
        action = [
            {name: item[name] for name in OF_A_CALL if name in item} for item in turn if item["type"] in OF_A_TURN
        ]
        step: Step = await self._read("/step", {"env_id": self._env_id, "action": action}, Step)
        return step

    async def verify(self, answered: dict[str, Any]) -> bytes:
        """Return the graded row as the server's unparsed JSON."""
        reply = await self._call("/verify", answered)
        body: bytes = reply.body
        return body

    async def close(self) -> None:
        """Close the environment on the server. Ignore failures."""
        closing = {"env_id": self._env_id}
        try:
            with grace_period():
                await self._client.post(self._server, "/close", json=closing, cookies=self._cookies)
        except (ServerCallError, RolloutError):
            # The server drops an idle environment by itself, so the rollout need not fail.
            return

    async def _read(self, path: str, body: dict[str, Any], kind: Any) -> Any:
        reply = await self._call(path, body)
        try:
            return kind.model_validate_json(await reply.read())
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "the reply"
            raise EnvironmentFailed(
                f"{self._server}: the reply of {path} is not valid: {where}: {problem['msg']}",
                server=self._server,
            ) from error

    async def _call(self, path: str, body: dict[str, Any]) -> Any:
        call = self._client.post(self._server, path, json=body, cookies=self._cookies)
        reply = await reply_to(call, server=self._server, during=path, otherwise=EnvironmentFailed)
        self._cookies |= {name: morsel.coded_value for name, morsel in reply.cookies.items()}
        return reply


async def metrics_of(client: ServerClient, server: str, body: AggregateMetricsRequest) -> AggregateMetrics:
    """Return a resources server's metrics of all graded rollouts. Raise `EnvironmentFailed` if the call fails."""
    path = "/aggregate_metrics"
    call = client.post(server, path, json=body.model_dump())
    reply = await reply_to(call, server=server, during=path, otherwise=EnvironmentFailed)
    return AggregateMetrics.model_validate(await get_response_json(reply))
