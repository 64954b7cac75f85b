"""Commands that merge collected rollouts, compute their metrics and profile their rewards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import printing, running, tables
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.config.without_model import load_for_metrics, only_for
from nemo_gym.errors import ConfigError
from nemo_gym.metrics import Completion, write_profile
from nemo_gym.metrics.profile import RewardProfileConfig, with_pass_rates
from nemo_gym.metrics.profile import profile as profile_of
from nemo_gym.rollouts.aggregate import aggregate_all
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.shards import (
    AggregationJob,
    check_output,
    check_shards,
    find_shards,
    merge_shards,
)
from nemo_gym.schemas.rollout import AgentMetrics
from nemo_gym.text import counted


class ProfileSettings(RewardProfileConfig):
    """Parameters of `ng eval profile`, including older names."""

    input_jsonl_fpath: Path | None = None
    """An older name of materialized_inputs_jsonl_fpath."""
    output_jsonl_fpath: Path | None = None
    """Where to write the tasks' metrics, by default next to the rollouts."""
    pass_threshold: float | None = None
    """Also report, per task, the share of rollouts whose reward is at least this value."""


class AggregationSettings(AggregationJob, StartSettings):
    """All parameters of `ng eval aggregate`, including those for starting servers."""


def aggregate(words: list[str]) -> int:
    """Merge rollout files, and compute metrics. Some metrics need the servers of a config, or running servers."""
    summary = (
        "Merge rollout files into one, and compute metrics. With a config, its servers are started, except models; "
        "without one, the running servers are used. If no servers are running, only the metrics that every "
        "environment has are computed, such as the mean reward."
    )
    line = Options("ng_aggregate_rollouts", AggregationSettings, summary).read(words)
    run = load_for_metrics(line.paths, line.overrides)
    job = settings_from(AggregationJob, run.plain)
    settings = settings_from(StartSettings, run.plain)
    shards = find_shards(job.input_glob, job.output_jsonl_fpath)
    # Check the output before the large files are read.
    if job.merge_shards:
        check_output(shards, job.output_jsonl_fpath, overwrite=job.overwrite)
    found = check_shards(shards)
    files = RunFiles(results=job.output_jsonl_fpath)
    files.results.parent.mkdir(parents=True, exist_ok=True)
    with _serving(run, found.agents, settings) as client:
        printing.say(
            f"{counted(found.rollouts, 'rollout')} in {counted(len(shards), 'file')}: {', '.join(map(str, shards))}"
        )
        if job.merge_shards:
            merge_shards(shards, files.results)
            printing.say(f"rollouts: {files.results}")
        metrics = asyncio.run(_ask(client, [files.results] if job.merge_shards else shards, files.metrics))
    tables.show(tables.key_metrics(metrics))
    printing.say(f"metrics:  {files.metrics}")
    return 0


@contextmanager
def _serving(run: RunConfig, agents: list[str], settings: StartSettings) -> Iterator[ServerClient | None]:
    """Yield a client for the servers that compute these agents' metrics, or None if there are no servers."""
    names_a_run = run.head.port_is_fixed
    if run.servers and not names_a_run:
        if unknown := sorted({*agents} - {*run.agent_names}):
            raise ConfigError(
                f"no file of this config defines the rollouts' agents ({', '.join(unknown)}). Agents of the "
                f"config: {', '.join(run.agent_names) or 'none'}. Pass the config of the original collection."
            )
        with running.launch_for(only_for(run, agents), settings, None, on_line=None) as servers:
            yield ServerClient.of_run(servers.run)
    elif (runs := live_runs()) or names_a_run:
        yield running.client_for(run, runs, agents)
    else:
        printing.note(
            "note: no servers are running, so metrics that an environment defines itself are missing. Name its config "
            "(--config, --resources-server) to have them computed."
        )
        yield None


async def _ask(client: ServerClient | None, results: Sequence[Path], written: Path) -> list[AgentMetrics]:
    try:
        return await aggregate_all(client, results, written)
    finally:
        if client is not None:
            await client.aclose()


def profile(words: list[str]) -> int:
    """Match rollouts with their input rows and write reward statistics. No running servers are needed."""
    line = Options("ng_reward_profile", ProfileSettings, takes_config=False).read(words)
    given = dict(load(line.paths, line.overrides, skip_dotenv=True).plain)
    if "input_jsonl_fpath" in given:
        given.setdefault("materialized_inputs_jsonl_fpath", given["input_jsonl_fpath"])
    settings = settings_from(ProfileSettings, given)
    found = profile_of(
        settings.materialized_inputs_jsonl_fpath,
        settings.rollouts_jsonl_fpath,
        allow_partial_rollouts=settings.allow_partial_rollouts,
    )
    if settings.pass_threshold is not None:
        found = with_pass_rates(found, settings.pass_threshold)
    files = write_profile(found, settings.rollouts_jsonl_fpath, reward_profiling=settings.output_jsonl_fpath)
    for agent, rewards in found.rewards.items():
        if rewards:
            tables.show(tables.histogram(rewards, title=f"Rewards of {agent}" if agent else "Rewards"))
            printing.say("")
    printing.say(_completion_line(found.completion))
    printing.say(f"tasks:  {files.reward_profiling}")
    printing.say(f"agents: {files.agent_metrics}")
    return 0


def _completion_line(done: Completion) -> str:
    inputs = done.complete_inputs + done.partial_inputs + done.missing_inputs
    return (
        f"{done.completed_rows} of {done.expected_rows} rollouts done; {counted(inputs, 'input')} = "
        f"{done.complete_inputs} complete + {done.partial_inputs} partial + {done.missing_inputs} missing"
    )
