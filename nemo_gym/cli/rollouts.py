"""Commands that collect rollouts, from running servers or from servers that they start."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from omegaconf import OmegaConf

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.loads import Load, loads_of
from nemo_gym.calls.running import live_runs
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.cli import outside, printing, running
from nemo_gym.cli.background import is_in_background, start_in_background
from nemo_gym.cli.failure_reporter import FailureReporter
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import StartSettings
from nemo_gym.cli.signals import stop_signals
from nemo_gym.config.checks import with_only_agent
from nemo_gym.config.masking import masked
from nemo_gym.config.models import RunConfig
from nemo_gym.config.secret_values import secrets_of
from nemo_gym.config.self_judged import self_judged
from nemo_gym.config.subject import RunSubject
from nemo_gym.config.without_model import load_as_written
from nemo_gym.data.exporters import export
from nemo_gym.data.gather import datasets_of_split, rows_of, split_of
from nemo_gym.data.obtain import Obtainer
from nemo_gym.errors import ConfigError, DataError, LaunchError, UsageError
from nemo_gym.jsonl import write_rows
from nemo_gym.launcher.local import RunningServers
from nemo_gym.launcher.warm import WarmStarter
from nemo_gym.memory import settle_memory, tend_memory
from nemo_gym.rollouts.aggregate import aggregate
from nemo_gym.rollouts.amending import place_of
from nemo_gym.rollouts.collector import collect as collect_rollouts
from nemo_gym.rollouts.job import CollectJob, EndToEndJob, RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.rollouts.opening import OpenRun, open_run
from nemo_gym.rollouts.outcome import Record, Summary
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.tasks import TaskPlan, check_size, find_input
from nemo_gym.rollouts.usage import PriceFile
from nemo_gym.schemas.rollout import AgentMetrics
from nemo_gym.text import counted
from nemo_gym.web.blocking import CURE

ResultT = TypeVar("ResultT")

RESUME_FLAG = "--resume"
INTERRUPTED = 130
BLOCKED_S, BLOCKED_SHARE = 1.0, 0.01
"""Blocking handlers are reported if they held their event loops for so many seconds and so large a part of the run."""
WATCH_S = 0.2
"""Seconds that one check of the servers takes. The time is short, because a run ends only after the last check."""


class EndToEndSettings(EndToEndJob, StartSettings):
    """All parameters of `ng eval run`, including those for starting servers."""


COLLECT = Options("ng_collect_rollouts", CollectJob, takes_sampling=True)
COLLECT_WITH_SERVERS = Options(
    "ng_e2e_collect_rollouts",
    EndToEndSettings,
    "Start the servers of a config, collect rollouts over a split of its datasets, stop the servers.",
    takes_model=True,
    takes_sampling=True,
)


def collect(words: list[str]) -> int:
    """Collect rollouts from running servers."""
    line = COLLECT.read(words)
    run = load_as_written(line.paths, line.overrides)
    job = settings_from(CollectJob, run.plain)
    files = RunFiles(results=job.output_jsonl_fpath)
    rows = find_input(job.input_jsonl_fpath, printing.note)
    # Check the files before anything is written, which includes the lock and the output of a run in the background.
    files.check_not_read([rows, *map(Path, run.config_paths)])
    if job.detach and not is_in_background():
        return start_in_background(job.output_jsonl_fpath)
    runs = live_runs()
    client = running.client_for(run, runs, [job.agent_name] if job.agent_name else [])
    book = client.address_book
    folders = [folder for folder in (book.settings.capture_dir, book.settings.token_id_capture.dir) if folder]
    files.check_not_read([rows], *map(Path, folders))
    rules, elsewhere = client.address_book.task_rules, running.choices_by_agent(runs)
    plan = TaskPlan(rows, job, client.agent_names(), elsewhere=elsewhere, rules=rules, notice=printing.note)
    with locked(files), open_run(plan, files, client.shared_run.subject, secrets=secrets_of(run)) as opened:
        code = _collect_and_report(client, opened)
        if code != INTERRUPTED:
            shown = masked(OmegaConf.to_container(client.global_config_dict))
            export(run.plain, shown, files.metrics, files.results, printing.note)
        opened.record.exits_with(code)
        return code


def run(words: list[str], starter: WarmStarter | None = None) -> int:
    """Start the servers of a config, collect rollouts over a split of its datasets, and stop the servers."""
    line = COLLECT_WITH_SERVERS.read(words)
    run_config = running.load_to_start(line.paths, line.overrides)
    job = settings_from(EndToEndJob, run_config.plain)
    settings = settings_from(StartSettings, run_config.plain)
    if job.agent_name is not None and job.input_jsonl_fpath is None:
        run_config = with_only_agent(run_config, job.agent_name)
    agents = run_config.agent_names
    if job.split == "train" and run_config.settings.model_cache is not None:
        raise ConfigError(
            "model_cache cannot be used with split=train: answers of an earlier policy must not be trained on. "
            "Remove model_cache, or choose another split."
        )
    if run_config.joins:
        raise UsageError(
            "join is for machines that only serve: ng_run … --join URL. To collect from a run on other machines, use "
            "ng_collect_rollouts with --head_server.host HOST --head_server.port PORT."
        )
    for text in self_judged(run_config):
        printing.note(f"note: {text}")
    if settings.dry_run:
        with running.launch_for(run_config, settings, starter, on_line=None):
            printing.say(f"{counted(len(run_config.servers), 'server')} can be started")
        return 0
    files = RunFiles(results=job.output_jsonl_fpath)
    files.check_not_read(map(Path, run_config.config_paths))
    if job.detach and not is_in_background():
        return start_in_background(job.output_jsonl_fpath)
    # Open the output before any server starts, so that an existing or locked output is rejected at once.
    with locked(files):
        plan = _prepare(run_config, job, agents)
        with open_run(plan, files, RunSubject.of_run(run_config), secrets=secrets_of(run_config)) as opened:
            code = _serve_and_collect(run_config, settings, starter, opened)
            opened.record.exits_with(code)
            return code


def _serve_and_collect(
    run_config: RunConfig, settings: StartSettings, starter: WarmStarter | None, opened: OpenRun
) -> int:
    files = opened.files
    with running.launch_for(run_config, settings, starter, on_line=None, log_dir=files.logs) as servers:
        running.await_model_endpoints(servers, settings)
        running.await_others(servers, settings)
        log_dir = settings.nemo_gym_log_dir or files.logs
        printing.note(f"{counted(len(run_config.servers), 'server')} ready; logs in {log_dir}")
        code = _collect_and_report(ServerClient.of_run(servers.run), opened, servers)
    if code != INTERRUPTED:
        export(run_config.plain, masked(run_config.raw), files.metrics, files.results, printing.note)
    return code


def _prepare(run_config: RunConfig, job: EndToEndJob, agents: list[str]) -> TaskPlan:
    files = RunFiles(results=job.output_jsonl_fpath)
    rules = TaskRules.of_run(run_config)
    if job.input_jsonl_fpath is not None:
        given = find_input(job.input_jsonl_fpath, printing.note)
        files.check_not_read([given])
        agent = job.agent_name or (agents[0] if len(agents) == 1 else None)
        return TaskPlan(given, job.model_copy(update={"agent_name": agent}), agents, rules=rules, notice=printing.note)
    if (made := run_config.plain.get(outside.ROWS)) is not None and not job.resume_from_cache:
        # The tasks of an environment elsewhere may have changed since an earlier run.
        Path(str(made)).unlink(missing_ok=True)
    split = job.split or split_of(run_config)
    job = job.model_copy(update={"split": split})
    rows = files.prepared / f"{split}.jsonl"
    if job.reuse_existing_data_preparation and rows.exists():
        return TaskPlan(rows, job, agents, rules=rules, is_gathered=True, notice=printing.note)
    datasets = datasets_of_split(run_config, split, Obtainer(run_config, printing.note).path_of)
    files.check_not_read((each.path for each in datasets), rows)
    copies, count, rollouts = job.num_repeats is None, 0, 0
    for agent, dataset, path in datasets:
        prompt = dataset.prompt_config or job.prompt_config
        # Check the rows before gathering them, so that errors name the original file and line.
        numbers = TaskPlan(
            path,
            job.model_copy(update={"agent_name": agent, "limit": None, "prompt_config": prompt}),
            agents,
            rules=rules,
        ).check()
        chosen = min(numbers.rows, job.limit or numbers.rows)
        count += chosen
        rollouts += numbers.rollouts * chosen // numbers.rows * (dataset.num_repeats if copies else 1)
    # Check the size here, too, because the gathered file contains the repeats that datasets set.
    check_size(count, rollouts, job, printing.note)
    write_rows(rows, rows_of(datasets, copies=copies, replaced_agents=run_config.replaced_agents))
    return TaskPlan(rows, job, agents, rules=rules, datasets=datasets, is_gathered=True)


def _collect_and_report(client: ServerClient, run: OpenRun, servers: RunningServers | None = None) -> int:
    """Collect rollouts and report the result; stop early if one of `servers` fails for good."""
    for note in run.notes:
        printing.note(f"{run.files.results}: {note}")
    if run.summary.finished < run.summary.planned:
        printing.note(plan_line(run))
    advice = f"Resume {run.files.results} with {RESUME_FLAG}"
    reporter = FailureReporter(printing.note, mask=run.secrets.mask, place_of=partial(place_of, run.plan))
    try:
        metrics = run_interruptibly(_collect(client, run, servers, reporter))
    except KeyboardInterrupt:
        run.record.end("interrupted")
        printing.note(f"interrupted: {summary_line(run.summary)}. {advice}")
        return INTERRUPTED
    except (LaunchError, DataError) as error:
        run.record.end("stopped", str(error))
        printing.note(f"stopped: {summary_line(run.summary)}. {advice}")
        raise
    are_benchmarks = isinstance(run.settings, EndToEndJob) and run.settings.split == "benchmark"
    shows_all = run.settings.metrics == "all"
    report(run.files, run.summary, metrics, reporter, run.prices, are_benchmarks=are_benchmarks, shows_all=shows_all)
    for warning in run.warnings:
        printing.note(f"warning: {warning}")
    if run.summary.ended_by:
        printing.note(f"ended by {run.summary.ended_by}. {advice}.")
    if run.settings.require_complete and run.summary.scored < run.summary.planned:
        owed = run.summary.planned - run.summary.scored
        printing.note(f"Error: require_complete: {owed} of {run.summary.planned} rollouts were not scored. {advice}.")
        return 1
    code = exit_code(run.files, run.summary, run.settings.max_failed_share)
    return code if metrics is not None or run.settings.disable_aggregation else 1


async def _collect(
    client: ServerClient, run: OpenRun, servers: RunningServers | None, reporter: FailureReporter
) -> list[AgentMetrics] | None:
    def on_record(record: Record, summary: Summary) -> None:
        reporter.take(record)
        progress.advance(record, summary)

    settle_memory()
    tending = asyncio.create_task(tend_memory())
    began_at, before = time.monotonic(), await loads_of(client)
    try:
        with Progress(run.summary) as progress:
            collecting = collect_rollouts(client, run, on_record=on_record, on_stop=_stop_this_process)
            await while_up(servers, collecting)
        after, took_s = await loads_of(client), time.monotonic() - began_at
        run.summary.engine_calls = _engine_calls(before, after)
        run.warnings += _blocked(before, after, took_s)
        if run.settings.disable_aggregation:
            return None
        try:
            return await while_up(servers, aggregate(client, run.files))
        except (DataError, LaunchError) as error:
            # Report the run without its metrics, because every rollout is already on disk. The exit code is then 1.
            printing.note(f"Error: {error}")
            return None
    finally:
        tending.cancel()
        await client.aclose()


def _blocked(before: Mapping[str, Load], after: Mapping[str, Load], took_s: float) -> list[str]:
    """Return a warning for each handler that blocked its event loop for a considerable part of a run."""
    earlier = {server: load.blocked_s for server, load in before.items()}
    return [
        f"{server} {handler} blocked the event loop of its server for {gained:.1f} s, and all other rollouts with it. "
        f"{CURE}."
        for server, load in after.items()
        for handler, seconds in load.blocked_s.items()
        if (gained := seconds - earlier.get(server, {}).get(handler, 0.0)) >= max(BLOCKED_S, BLOCKED_SHARE * took_s)
    ]


def _engine_calls(before: Mapping[str, Load], after: Mapping[str, Load]) -> dict[str, dict[str, int]]:
    """Return how many calls stayed with their rollout's engine, and how many moved, for servers with several."""
    found = {}
    for server, load in after.items():
        kept, moved = load.kept, load.moved
        if (earlier := before.get(server)) is not None:
            kept, moved = kept - earlier.kept, moved - earlier.moved
        if kept > 0 or moved > 0:
            found[server] = {"kept": kept, "moved": moved}
    return found


def _stop_this_process() -> None:
    # Send the signal instead of exiting, because its handler ends the command in an orderly way.
    os.kill(os.getpid(), signal.SIGTERM)


async def while_up(servers: RunningServers | None, work: Coroutine[object, None, ResultT]) -> ResultT:
    """Await the work. If a server fails for good, cancel the work and raise a `LaunchError` that names the server."""
    if servers is None:
        return await work
    working = asyncio.create_task(work)
    try:
        while not working.done():
            watching = asyncio.create_task(asyncio.to_thread(servers.watch, WATCH_S))
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            else:
                await asyncio.gather(watching, return_exceptions=True)
        return await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def report(
    files: RunFiles,
    summary: Summary,
    metrics: list[AgentMetrics] | None,
    reporter: FailureReporter,
    prices: PriceFile | None = None,
    *,
    are_benchmarks: bool = False,
    shows_all: bool = False,
    shows_usage: bool = True,
) -> None:
    """Print a run's key metrics, its summary and the paths of its files."""
    from nemo_gym.cli import tables

    if metrics:
        shows_all = shows_all or len(metrics) == 1
        tables.show(
            tables.key_metrics(metrics) if shows_all else tables.agents(metrics, are_benchmarks=are_benchmarks)
        )
        printing.say("")
    printing.say(summary_line(summary))
    if shows_usage and (usage := summary.usage.described(prices)):
        printing.say(f"tokens: {usage}")
    if summary.model_cache is not None:
        printing.say(f"model cache: {summary.model_cache.hits} hits, {summary.model_cache.misses} misses")
    for line in reporter.lines():
        printing.say(line)
    printing.say(f"rollouts: {files.results}")
    if summary.failed or summary.repeated:
        again = f"  (including {summary.repeated} attempts that were retried)" if summary.repeated else ""
        printing.say(f"failures: {files.failures}{again}")
    if metrics:
        printing.say(f"metrics:  {files.metrics}")
    if summary.failed:
        printing.say(f"failed: {_failed_of(summary)} ({_percent(summary.failed_share)})")
    program = "ng" if shutil.which("ng") else str(Path(sys.argv[0]).with_name("ng"))
    printing.say(f"look:     {program} view {shlex.quote(str(files.results))}")
    if summary.has_no_answers:
        printing.note(
            f"warning: no answer was recognised in {summary.unanswered:,} of {summary.unanswered:,} rollouts, so "
            f"their rewards measure nothing. Look at some: ng eval show {files.results}"
        )


def exit_code(files: RunFiles, summary: Summary, max_failed_share: float | None) -> int:
    """Return 1 if no planned rollout was scored or too many failed, else 0. Print an error if too many failed."""
    if max_failed_share is not None and summary.failed_share > max_failed_share:
        printing.note(
            f"Error: max_failed_share: {_failed_of(summary)} failed ({_percent(summary.failed_share)}), but only "
            f"{_percent(max_failed_share)} may. The causes are in {files.failures}."
        )
        return 1
    return 0 if summary.scored or not summary.planned else 1


def _failed_of(summary: Summary) -> str:
    return f"{summary.failed} of {summary.scored + summary.failed} rollouts"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def plan_line(run: OpenRun) -> str:
    """Return a line that says what a run is about to collect."""
    planned, at_once = run.summary.planned, run.settings.num_samples_in_parallel
    tasks, rollouts = counted(run.tasks, "task"), counted(planned, "rollout")
    repeats = planned // max(1, run.tasks)
    is_even = repeats > 1 and repeats * run.tasks == planned
    amount = f"{tasks} × {repeats} repeats = {rollouts}" if is_even else f"{rollouts} of {tasks}"
    earlier = f", {run.summary.finished} of them done earlier" if run.summary.finished else ""
    pace = "with adaptive concurrency" if at_once == "auto" else f"at most {min(at_once, planned)} at once"
    return f"plan: {amount}{earlier}, {pace}, into {run.files.results}"


def summary_line(summary: Summary) -> str:
    """Return a line that accounts for every planned rollout."""
    causes = ", ".join(f"{count} {cause}" for cause, count in summary.failed_by_cause.most_common())
    kept = f" ({summary.kept} of them earlier)" if summary.kept else ""
    return (
        f"{summary.planned} planned = {summary.scored} scored{kept} + {summary.failed} failed"
        f"{f' ({causes})' if causes else ''} + {summary.unresolved} unresolved"
    )


def run_interruptibly(work: Coroutine[object, None, ResultT]) -> ResultT:
    """Run the work in an event loop. A stop signal cancels the work, and then `KeyboardInterrupt` is raised.

    Further signals are ignored, because the command then reports and stops its servers within seconds.
    """
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    interrupts: list[signal.Signals] = []
    handlers = {number: signal.getsignal(number) for number in stop_signals()}

    async def interruptible() -> ResultT:
        task = asyncio.current_task()
        assert task is not None

        def interrupt(number: signal.Signals) -> None:
            interrupts.append(number)
            task.cancel()

        # Handle the signals in the loop. By default, a second interrupt is raised in the event loop's own code. A
        # callback for which the run waits may then be lost.
        for number in handlers:
            asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
        return await work

    try:
        return uvloop.run(interruptible())
    except asyncio.CancelledError:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    finally:
        # Closing the loop has reset these signals to their default actions. Restore the handlers, or ignore further
        # signals after an interrupt.
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_IGN if interrupts else handler)
