"""Shared code of the commands that start, find and show servers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nemo_gym import plugins
from nemo_gym.calls import loads
from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.look_up import addresses_of
from nemo_gym.calls.running import RunRecord
from nemo_gym.cli import printing
from nemo_gym.cli.settings import StartSettings
from nemo_gym.config.allowed_pairings import accepted
from nemo_gym.config.endpoints import model_endpoints
from nemo_gym.config.loading import load
from nemo_gym.config.masking import mask_text
from nemo_gym.config.models import HeadConfig, RunConfig
from nemo_gym.config.overrides import Override
from nemo_gym.config.process import ServerInstance
from nemo_gym.data.benchmarks import check_prepared
from nemo_gym.errors import ConfigError, DataError, LaunchError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.probe import Trouble, trouble_of
from nemo_gym.jsonl import JsonObject
from nemo_gym.launcher.local import RunningServers, launch
from nemo_gym.launcher.warm import WarmStarter
from nemo_gym.launcher.watch import LineSink
from nemo_gym.text import counted, did_you_mean_or_all

LOCAL = "local"
PROBE_TIMEOUT_S = 5.0
SHORTEST_PROBE_S = 0.5
ENDPOINT_POLL_S = 1.0
REMINDER_S = 5.0
LASTING_S = 8.0
"""Seconds to wait by default if only the user can solve the problem."""
REFUSED_S = 60.0
"""Seconds to wait by default for a port that refuses connections. The time is short, as the address may be wrong."""


def load_to_start(files: Sequence[str], overrides: Sequence[Override | str]) -> RunConfig:
    """Load a config whose servers are to be started, and print its notes."""
    run = with_checked_pairing(load(files, overrides, require_servers=True))
    for text in run.notes:
        printing.note(f"note: {text}")
    return run


def with_checked_pairing(run: RunConfig) -> RunConfig:
    """Return the run, with notes if an agent that the command line has chosen does not fit its environment.

    Raise `ConfigError` if there is such a pairing and the config does not allow it.
    """
    if not run.paired_agents:
        return run
    # Import the module here, because it imports the base classes of all servers, which other runs do not need.
    from nemo_gym.contract.pairing import misfits

    try:
        return accepted(run, misfits(run))
    except (DataError, LaunchError) as error:
        # Do not fail, because this process may lack packages that a server has in its own virtual environment. The
        # start of the server reports real errors.
        return run.model_copy(
            update={"notes": (*run.notes, f"did not check whether the agents fit their environments: {error}")}
        )


def launch_for(
    run: RunConfig,
    settings: StartSettings,
    starter: WarmStarter | None,
    *,
    on_line: LineSink | None,
    log_dir: Path | None = None,
) -> RunningServers:
    wants_fork = run.settings.process_start_method == "fork"
    start = partial(launch, dry_run=True) if settings.dry_run else _launcher_named(settings.launcher)
    check_prepared(run)
    with _noting_interruption(run):
        return start(
            run,
            starter=starter if wants_fork else None,
            on_line=on_line,
            notice=printing.note,
            log_dir=settings.nemo_gym_log_dir or log_dir,
            ready_timeout_s=settings.ready_timeout_s,
            restart_limit=settings.restart_limit,
            auto_install=settings.auto_install,
        )


def _launcher_named(name: str) -> Callable[..., RunningServers]:
    if name == LOCAL:
        return launch
    try:
        found: Callable[..., RunningServers] = plugins.load(plugins.LAUNCHERS, name)
    except KeyError:
        names = [LOCAL, *plugins.names_in(plugins.LAUNCHERS)]
        hint = did_you_mean_or_all(name, names, "launchers")
        raise ConfigError(f"launcher: there is no launcher '{name}'.{hint}") from None
    return found


@contextmanager
def _noting_interruption(run: RunConfig) -> Iterator[None]:
    """If a signal interrupts this block, add a note that names the stopped servers to the raised exception."""
    try:
        yield
    except Exception:
        raise
    except BaseException as signalled:
        signalled.add_note(f"Interrupted during the start. Stopped: {', '.join(run.servers)}.")
        raise


def interruption(signalled: BaseException | None) -> str:
    """Return a message that says which servers were stopped when a signal interrupted their start."""
    while signalled is not None:
        if notes := getattr(signalled, "__notes__", None):
            return "\n".join(notes)
        # Search earlier exceptions, too, because a second signal may interrupt the handling of the first one.
        signalled = signalled.__context__
    return "Interrupted before any server was started."


def await_model_endpoints(servers: RunningServers, settings: StartSettings) -> None:
    """Wait until every model endpoint answers with any HTTP status. Watch the servers meanwhile.

    Raise `LaunchError` if an endpoint has the same problem for too long, or if a server fails for good.
    """
    with _noting_interruption(servers.run):
        _await_model_endpoints(servers, settings)


def _await_model_endpoints(servers: RunningServers, settings: StartSettings) -> None:
    timeout_s = settings.model_endpoint_readiness_timeout_seconds
    if timeout_s == 0:
        return
    lasting = (Trouble.UNKNOWN_NAME, Trouble.PLAIN, Trouble.UNTRUSTED, Trouble.INVALID)
    limits = dict.fromkeys(Trouble, timeout_s) | dict.fromkeys(lasting, min(LASTING_S, timeout_s))
    if "model_endpoint_readiness_timeout_seconds" not in settings.model_fields_set:
        limits[Trouble.REFUSED] = REFUSED_S
    endpoints = model_endpoints(servers.run)
    remind_at = started_at = time.monotonic()
    began = {(url, trouble): started_at for url in endpoints for trouble in Trouble}
    while troubles := {
        url: found for url in endpoints if (found := trouble_of(url, _probe_s(started_at + timeout_s)))
    }:
        now = time.monotonic()
        endpoints = {url: endpoints[url] for url in troubles}
        # Reset the waiting time of problems that an endpoint does not have now. The problem may change while an
        # endpoint starts, and each new problem may last for its full limit.
        began |= {(url, other): now for url, found in troubles.items() for other in Trouble if other is not found}
        for url, trouble in troubles.items():
            waited_s, limit_s = now - began[url, trouble], limits[trouble]
            if waited_s > limit_s or now - started_at > timeout_s:
                raise LaunchError(
                    f"model endpoint {mask_text(url)}: {trouble}, for {waited_s:.0f} s. {trouble.advice}, correct its "
                    f"address ({endpoints[url]}), or set --model_endpoint_readiness_timeout_seconds SECONDS "
                    "to wait longer, 0 to continue without it."
                )
            if now >= remind_at:
                printing.note(
                    f"waiting for the model endpoint {mask_text(url)}: {trouble} ({waited_s:.0f} of {limit_s:g} s). "
                    f"{endpoints[url]} sets the address."
                )
        remind_at = now + REMINDER_S if now >= remind_at else remind_at
        servers.watch(ENDPOINT_POLL_S)


def await_others(servers: RunningServers, settings: StartSettings) -> None:
    """Wait until other machines have started the remaining servers. Raise `LaunchError` after `join_timeout_s`."""
    run = servers.run
    if run.only is None or run.joins:
        return
    remind_at = started_at = time.monotonic()
    with _noting_interruption(run):
        while missing := _missing_in(run):
            waited_s = time.monotonic() - started_at
            if waited_s > settings.join_timeout_s:
                raise LaunchError(
                    f"no machine has started {', '.join(missing)} after {waited_s:.0f} s. Start them with ng_run … "
                    f"--only {','.join(missing)} --join {run.head.outward_url}, or set "
                    "--join-timeout-s SECONDS to wait longer."
                )
            if time.monotonic() >= remind_at:
                printing.note(
                    f"waiting for other machines to start {', '.join(missing)} ({waited_s:.0f} of "
                    f"{settings.join_timeout_s:g} s)"
                )
                remind_at = time.monotonic() + REMINDER_S
            servers.watch(ENDPOINT_POLL_S)


def _missing_in(run: RunConfig) -> list[str]:
    """Return the servers of a run that no machine has started yet."""
    listed = addresses_of(AddressBook.of_run(run)).listed
    return [name for name in run.servers if name not in listed]


def _probe_s(deadline: float) -> float:
    return min(PROBE_TIMEOUT_S, max(SHORTEST_PROBE_S, deadline - time.monotonic()))


def find_head(run: RunConfig, runs: Sequence[RunRecord], agents: Collection[str] = ()) -> HeadConfig:
    """Return a head server: the configured one if its port is fixed or no run is live, else the one of a live run.

    `runs` is the result of `live_runs`. Runs that have all of these agents take precedence. Of several runs, choose
    the latest one that was started in this folder. Raise `LaunchError` if none of them was started here.
    """
    if run.head.port_is_fixed and run.head.port:
        return run.head.model_copy(update={"tls": loads.tls_of(run.head)})
    if not runs:
        return run.head
    suitable = [each for each in runs if {*agents} <= {*each.agents}] or runs
    chosen = suitable[-1]
    if len(suitable) > 1 and chosen.working_dir != os.getcwd():
        raise LaunchError(
            f"{len(suitable)} runs are up, and none of them was started in this folder ({os.getcwd()}). Choose one: "
            f"{', '.join(each.choice for each in suitable)}."
        )
    if len(runs) > 1:
        others = ", ".join(f"{other.port}" for other in runs if other is not chosen)
        printing.note(
            f"several runs are up; using {chosen.host}:{chosen.port} (--head_server.port … selects another: {others})"
        )
    return HeadConfig(host=chosen.host, port=chosen.port, tls=run.tls or chosen.tls)


def client_for(run: RunConfig, runs: Sequence[RunRecord], agents: Collection[str]) -> ServerClient:
    """Return a client for the running servers, with the run's token if this process has access to it.

    `find_head` chooses the run.
    """
    return ServerClient.load_from_global_config(find_head(run, runs, agents), run.settings.run_token or None)


def choices_by_agent(runs: Iterable[RunRecord]) -> dict[str, str]:
    """Return, for each agent of these runs, the overrides that select a run with that agent."""
    choices: dict[str, list[str]] = {}
    for each in runs:
        for agent in each.agents:
            choices.setdefault(agent, []).append(each.choice)
    return {agent: " or ".join(found) for agent, found in choices.items()}


def ask_for_servers(head: HeadConfig, run_token: str | None = None) -> list[JsonObject]:
    """Return the servers that a run's head server lists, or raise `LaunchError` if it does not answer."""

    async def ask() -> list[JsonObject]:
        async with InternalClient(tls=loads.tls_of(head)) as client:
            return await loads.ask_for_servers(client, head, run_token)

    return asyncio.run(ask())


def show_instances(instances: Iterable[ServerInstance]) -> None:
    """Print one line per server, in columns. Do not import rich, because it would stay in memory for the whole run."""
    rows = [(each.config_path, each.server_type, each.name, each.url, each.where) for each in instances]
    lines = [("server", "tier", "implementation", "address", "pid"), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        printing.say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _restarted(times: int) -> str:
    return f"  restarted {counted(times, 'time')}" if times else ""


def _busy(load: JsonObject | None) -> str:
    if load is None:
        return ""
    waiting = f" + {load['queued']} waiting" if load["queued"] else ""
    return f"  {load['in_flight']} in flight{waiting}, loop lag {load['loop_lag_s'] * 1000:.0f} ms"


def show_status(servers: list[JsonObject]) -> None:
    """Print one line per server, and the number of servers that answer."""
    for number, server in enumerate(servers, start=1):
        mark = "✓" if server["status"] == "success" else "✗"
        where = ServerInstance.model_validate(server).where
        printing.say(
            f"[{number}] {mark} {server['config_path']} ({server['server_type']}/{server['name']})  {server['url']}  "
            f"pid {where}  up {server['uptime_seconds']:.0f} s{_restarted(server.get('restarts', 0))}"
            + (_busy(server.get("load")) if server["status"] == "success" else f"  {server['status']}")
        )
    healthy = sum(server["status"] == "success" for server in servers)
    printing.say(f"{healthy} of {counted(len(servers), 'server')} answer")
