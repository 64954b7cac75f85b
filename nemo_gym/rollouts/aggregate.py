"""Metrics of a finished run: each agent is asked for those of its own rollouts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.errors import DataError, ServerCallError
from nemo_gym.http.client import ServerClient
from nemo_gym.http.internal import Timeouts
from nemo_gym.http.problems import readable
from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.rollout import AGENT_REF_KEY

STRIPPED = frozenset({
    "response", "responses_create_params", "ng_model_call_capture", "ng_agent_observations", "ng_trajectory",
    "_ng_token_capture",
})  # fmt: skip
AGGREGATION_TIMEOUT_S = 600.0

AgentMetrics = dict[str, Any]
"""`{agent_ref: {name}, agent_metrics, key_metrics, group_level_metrics}`"""


async def aggregate(client: ServerClient, files: RunFiles) -> list[AgentMetrics]:
    """Ask every agent for its metrics and write them beside the results."""
    rollouts: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(files.results):
        rollouts.setdefault(str(row[AGENT_REF_KEY]["name"]), []).append(_stripped(row))
    metrics = await asyncio.gather(*(_ask(client, agent, rows) for agent, rows in sorted(rollouts.items())))
    _write(files.metrics, metrics)
    return metrics


async def _ask(client: ServerClient, agent: str, rows: list[dict[str, Any]]) -> AgentMetrics:
    timeouts = Timeouts(read_s=AGGREGATION_TIMEOUT_S, total_s=AGGREGATION_TIMEOUT_S)
    try:
        reply = await client.post(agent, "/aggregate_metrics", json={"verify_responses": rows}, timeouts=timeouts)
    except ServerCallError as error:
        raise DataError(f"the rollouts are complete, but their metrics are not: {error}") from error
    body = await reply.read()
    if not reply.ok:
        raise DataError(
            f"the rollouts are complete, but {agent} could not aggregate them ({reply.status}): {readable(body)}"
        )
    return {AGENT_REF_KEY: {"name": agent}, **orjson.loads(body)}


def _stripped(row: dict[str, Any]) -> dict[str, Any]:
    usage = (row.get("response") or {}).get("usage")
    kept = {key: value for key, value in row.items() if key not in STRIPPED}
    return {**kept, "response": {"usage": usage}} if usage else kept


def _write(path: Path, metrics: list[AgentMetrics]) -> None:
    path.write_bytes(orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
