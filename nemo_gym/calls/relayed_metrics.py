"""The metrics of an agent whose resources server computes them."""

from __future__ import annotations

from nemo_gym.calls.client import ServerClient, get_response_json
from nemo_gym.calls.problems import reply_to
from nemo_gym.errors import EnvironmentFailed
from nemo_gym.schemas.rollout import AggregateMetrics, AggregateMetricsRequest


async def relayed_metrics(client: ServerClient, server: str, body: AggregateMetricsRequest) -> AggregateMetrics:
    """Return a resources server's metrics of an agent's graded rollouts. Raise `RolloutError` if the call fails."""
    path = "/aggregate_metrics"
    call = client.post(server, path, json=body.model_dump())
    reply = await reply_to(call, server=server, during=path, otherwise=EnvironmentFailed)
    return AggregateMetrics.model_validate(await get_response_json(reply))
