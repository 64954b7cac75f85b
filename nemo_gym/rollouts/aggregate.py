"""Metrics of a finished run: each agent is asked for those of its own rollouts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.errors import DataError, ServerCallError
from nemo_gym.http.client import ServerClient
from nemo_gym.http.problems import readable
from nemo_gym.http.reply import Timeouts
from nemo_gym.jsonl import read_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas.rollout import AGENT_REF_KEY, AggregateMetrics

STRIPPED = frozenset({
    "response", "responses_create_params", "ng_model_call_capture", "ng_agent_observations", "ng_trajectory",
    "_ng_token_capture",
})  # fmt: skip
AGGREGATION_TIMEOUT_S = 600.0

AgentMetrics = dict[str, Any]
"""`{agent_ref: {name}, agent_metrics, key_metrics, group_level_metrics}`"""


async def aggregate(client: ServerClient, files: RunFiles) -> list[AgentMetrics]:
    """Ask every agent for its metrics and write them beside the results.

    Where an agent cannot tell them, the others' are written all the same, and `DataError` says why.
    """
    files.metrics.unlink(missing_ok=True)
    rollouts: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(files.results):
        rollouts.setdefault(str(row[AGENT_REF_KEY]["name"]), []).append(_stripped(row))
    answers = await asyncio.gather(*(_ask(client, agent, rows) for agent, rows in sorted(rollouts.items())))
    metrics = [answer for answer in answers if not isinstance(answer, str)]
    if metrics:
        _write(files.metrics, metrics)
    if problems := [answer for answer in answers if isinstance(answer, str)]:
        written = f" {files.metrics} has those of the other agents." if metrics else ""
        raise DataError(f"the rollouts are kept in {files.results}, but {'; '.join(problems)}.{written}")
    return metrics


async def _ask(client: ServerClient, agent: str, rows: list[dict[str, Any]]) -> AgentMetrics | str:
    """An agent's metrics, or why there are none."""
    timeouts = Timeouts(read_s=AGGREGATION_TIMEOUT_S, total_s=AGGREGATION_TIMEOUT_S)
    try:
        reply = await client.post(agent, "/aggregate_metrics", json={"verify_responses": rows}, timeouts=timeouts)
    except ServerCallError as error:
        return f"{agent} gave no metrics: {error}"
    body = await reply.read()
    try:
        if reply.ok:
            return {AGENT_REF_KEY: {"name": agent}, **AggregateMetrics.model_validate_json(body).model_dump()}
    except ValidationError:
        pass  # told below, as any other answer that is no metrics
    return f"{agent} gave no metrics: /aggregate_metrics answered {reply.status}: {readable(body)}"


def _stripped(row: dict[str, Any]) -> dict[str, Any]:
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    kept = {key: value for key, value in row.items() if key not in STRIPPED}
    return {**kept, "response": {"usage": usage}} if usage else kept


def _write(path: Path, metrics: list[AgentMetrics]) -> None:
    path.write_bytes(orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
