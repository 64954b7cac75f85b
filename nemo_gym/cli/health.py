"""The command that tries a run's models and a few of its tasks before the whole run."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import orjson
from pydantic import Field, PositiveInt

from nemo_gym.calls.client import ServerClient
from nemo_gym.cli import printing, running, tables
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config.models import RunConfig
from nemo_gym.data.gather import AgentDataset, datasets_of_split, numbered_rows_of
from nemo_gym.data.obtain import Obtainer
from nemo_gym.errors import ServerCallError
from nemo_gym.evaluation.health import (
    Finding,
    check_models,
    described,
    finding_of_prices,
    findings_of_rollouts,
    forecast,
    try_rollouts,
    with_own_tools,
)
from nemo_gym.launcher.warm import WarmStarter
from nemo_gym.rollouts.usage import PriceFile
from nemo_gym.schemas.row import Row


class HealthSettings(StartSettings):
    """Parameters of `ng eval health-check`."""

    split: Literal["train", "validation", "benchmark", "example"] = "benchmark"
    """The type of the datasets whose rows are tried."""
    rows: PositiveInt = 3
    """How many rows of each dataset to try: the one with the longest prompt, and others at random."""
    num_repeats: PositiveInt | None = None
    """How often the whole run will run each row, for the forecast. Default: the dataset's num_repeats."""
    num_samples_in_parallel: PositiveInt = 1024
    """How many rollouts the whole run will run at once, for the forecast."""
    limit: PositiveInt | None = None
    """The number of rows of each dataset that the whole run will use. Default: all."""
    rollout_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds after which a call or a rollout counts as failed."""
    prices: Path | None = None
    """A YAML file with prices per million tokens, for the forecast."""


class _Sample(NamedTuple):
    """The rows to try, and the number of rollouts per agent in the whole run."""

    rows: list[Row]
    planned: dict[str, int]


def health_check(words: list[str], starter: WarmStarter | None = None) -> int:
    """Try the models and a few tasks of a config, and forecast the whole run."""
    summary = (
        "Start the servers of a config, ask each model for an answer, and for a tool call and token ids if the run "
        "needs them, run a few rollouts, and forecast the tokens, the cost and the time of the whole run."
    )
    line = Options("ng eval health-check", HealthSettings, summary, takes_model=True).read(words)
    run_config = running.load_to_start(line.paths, line.overrides)
    settings = settings_from(HealthSettings, run_config.plain)
    prices = PriceFile.read(settings.prices) if settings.prices else None
    datasets = datasets_of_split(run_config, settings.split, Obtainer(run_config, printing.note).path_of)
    sample = _sample(datasets, settings)
    with running.launch_for(run_config, settings, starter, on_line=None) as servers:
        running.await_model_endpoints(servers, settings)
        return asyncio.run(_check(servers.run, sample, settings, prices))


def _sample(datasets: list[AgentDataset], settings: HealthSettings) -> _Sample:
    rows: list[Row] = []
    planned: dict[str, int] = {}
    for each in datasets:
        found = [Row(row) for _, row in numbered_rows_of(each)][: settings.limit]
        repeats = settings.num_repeats or each.dataset.num_repeats
        planned[each.agent] = planned.get(each.agent, 0) + len(found) * repeats
        longest = max(found, key=lambda row: len(str((row.params or {}).get("input"))), default=None)
        others = [row for row in found if row is not longest]
        chosen = random.Random(0).sample(others, min(settings.rows - 1, len(others)))
        rows += ([longest] if longest else []) + chosen
    numbered = [row.of_task(number).of_repeat(0) for number, row in enumerate(rows)]
    return _Sample(numbered, planned)


async def _check(run: RunConfig, sample: _Sample, settings: HealthSettings, prices: PriceFile | None) -> int:
    client = ServerClient.of_run(run)
    models = [server.name for server in run.servers_of("responses_api_models")]
    try:
        findings = await check_models(
            client,
            models,
            calls_tools=await _have_tools(client, run, sample.rows),
            wants_tokens=_wants_tokens(run),
            timeout_s=settings.rollout_timeout_s,
            tool_choice=next(filter(None, ((row.params or {}).get("tool_choice") for row in sample.rows)), None),
        )
        tried = await try_rollouts(client, sample.rows, timeout_s=settings.rollout_timeout_s)
    finally:
        await client.aclose()
    agents = run.servers_of("responses_api_agents")
    policies = {agent.name: agent.referred("model_server") for agent in agents}
    findings = with_own_tools(findings, tried, policies) + findings_of_rollouts(tried)
    if prices is not None:
        findings.append(finding_of_prices(tried, prices))
    tables.show(tables.health(findings))
    printing.say("")
    printing.say(described(forecast(tried, sample.planned, settings.num_samples_in_parallel, prices), prices))
    return _code(findings)


def _code(findings: list[Finding]) -> int:
    bad = [each for each in findings if not each.is_good]
    if bad:
        printing.note(f"Error: {len(bad)} of {len(findings)} checks failed, see above.")
    return 1 if bad else 0


async def _have_tools(client: ServerClient, run: RunConfig, rows: list[Row]) -> bool:
    """Return whether the tasks have tools, from their rows or from a resources server."""
    if any((row.params or {}).get("tools") for row in rows):
        return True
    for server in run.servers_of("resources_servers"):
        try:
            reply = await client.get(server.name, "/tools")
        except ServerCallError:
            continue
        # Ignore a reply that is not JSON, because a server with its own routes could return anything for `/tools`.
        with suppress(orjson.JSONDecodeError):
            if reply.ok and await reply.json():
                return True
    return False


def _wants_tokens(run: RunConfig) -> bool:
    return run.settings.token_id_capture.enabled or any(
        server.settings.get("return_token_id_information") is True for server in run.servers_of("responses_api_models")
    )
