"""The command `ng env top`, which shows in a live table how busy the servers of a run are."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from pydantic import Field
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column
from rich.text import Text

from nemo_gym.calls.loads import LoadReader, ServerLoad
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import printing, running, tables
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import JsonSettings
from nemo_gym.cli.signals import stop_signals
from nemo_gym.config import loading
from nemo_gym.config.models import HeadConfig
from nemo_gym.errors import HeadServerNotFoundError, LaunchError
from nemo_gym.text import counted

FIRST_INTERVAL_S = 0.5
"""Seconds between the first two readings: few, because rates are known only from the second reading on."""
QUIT_KEYS = b"qQ"
COLOURS = {"up": "green", "starting": "yellow", "down": "bold red"}
LEAST_NEEDED = ("refused", "err/s", "tier", "MiB", "CPU %", "lag ms", "errors", "req/s")
"""The columns that a narrow terminal does not show, those that are left out first first."""
LAGGING_MS = 100.0
"""The event loop lag, in milliseconds, from which every request is noticeably delayed and the lag is shown in red."""


class TopSettings(JsonSettings):
    """Parameters of `ng env top`."""

    as_json: bool = Field(default=False, alias="json")
    """Print one reading as JSON, with rates measured over half a second."""
    once: bool = False
    """Print one table, with rates measured over half a second. Implied if the output is not a terminal."""
    interval: float = Field(default=2.0, ge=0.2, le=3600)
    """Seconds between two readings."""


def top(words: list[str]) -> int:
    """Show the servers of a run and how busy they are, once or continuously."""
    summary = (
        "Show the servers of a run and how busy they are: requests, event loop, CPU, memory and errors. The table is "
        "renewed until you press q. If several runs are up, --head_server.port … selects one."
    )
    line = Options("ng env top", TopSettings, summary).read(words)
    run = loading.load(line.paths, line.overrides, needs_variables=False)
    settings = settings_from(TopSettings, run.plain)
    head, token = running.find_head(run, live_runs()), run.settings.run_token or None
    console = tables.console()
    if not (settings.as_json or settings.once) and console.is_terminal and not console.is_dumb_terminal:
        asyncio.run(_watch(console, head, token, settings.interval))
        return 0
    loads = asyncio.run(_read_once(head, token))
    if settings.as_json:
        listed = [each.model_dump() for each in loads]
        printing.say_json(listed)
    else:
        console.print(table_of(loads, console.width))
    return 0


async def _read_once(head: HeadConfig, token: str | None) -> list[ServerLoad]:
    async with LoadReader(head, token) as reader:
        await reader.read()
        await asyncio.sleep(FIRST_INTERVAL_S)
        return await reader.read()


async def _watch(console: Console, head: HeadConfig, token: str | None, interval_s: float) -> None:
    """Show the servers until the user quits with a key or a signal, or until the run ends."""
    async with LoadReader(head, token) as reader:
        # Let errors of the first reading end the command.
        loads, problem, pause_s = await reader.read(), None, FIRST_INTERVAL_S
        with _quitting() as quits, Live(console=console, screen=True, auto_refresh=False) as live:
            live.update(_page(console, head, loads, problem), refresh=True)
            while not await _happens_within(quits, pause_s):
                try:
                    loads, problem = await _read_unless(quits, reader) or loads, None
                except HeadServerNotFoundError:
                    break
                except LaunchError as error:
                    problem = str(error)
                live.update(_page(console, head, loads, problem), refresh=True)
                pause_s = interval_s
    # Print the last reading again, because the screen of the live table has disappeared.
    console.print(table_of(loads, console.width))
    if not quits.is_set():
        printing.note(f"the run at {head.url} has ended")


async def _happens_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _read_unless(quits: asyncio.Event, reader: LoadReader) -> list[ServerLoad] | None:
    """Return the loads, or None if the user quits first.

    If the user quits, cancel the reading, because a server that hangs can delay the loads for seconds.
    """
    reading, quitting = asyncio.create_task(reader.read()), asyncio.create_task(quits.wait())
    await asyncio.wait({reading, quitting}, return_when=asyncio.FIRST_COMPLETED)
    quitting.cancel()
    if reading.done():
        return reading.result()
    reading.cancel()
    await asyncio.wait({reading})
    return None


@contextmanager
def _quitting() -> Iterator[asyncio.Event]:
    """Yield an event that is set by a stop signal or by a quit key."""
    quits, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = stop_signals()
    for number in numbers:
        loop.add_signal_handler(number, quits.set)
    try:
        with _keys(quits) if sys.stdin.isatty() else nullcontext():
            yield quits
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def _keys(quits: asyncio.Event) -> Iterator[None]:
    """Read keys without echo, and set the event if one of them is in `QUIT_KEYS`."""
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def read_key() -> None:
        key = os.read(terminal, 1)
        # Quit on an empty read, too, because it means that the terminal has been closed.
        if not key or key in QUIT_KEYS:
            loop.remove_reader(terminal)
            quits.set()

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read_key)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _page(console: Console, head: HeadConfig, loads: list[ServerLoad], problem: str | None) -> Group:
    """Return the whole screen: a line about the run, the table, and the problem if the last reading failed."""
    up = sum(each.state == "up" for each in loads)
    state = f"{up} of {counted(len(loads), 'server')} up"
    title = f"{head.url}   {state}   {time.strftime('%H:%M:%S')}   q quits"
    notes = [Text(), tables.safe(f"The table is not current: {problem}", "red")] if problem else []
    return Group(tables.safe(title), Text(), table_of(loads, console.width), *notes)


def table_of(loads: list[ServerLoad], width: int) -> Group:
    """Return a table of servers, one row each, and a line for each problem."""
    columns: list[tuple[Column, Sequence[object]]] = [
        (Column("server", overflow="ellipsis", no_wrap=True, max_width=width // 2), [load.name for load in loads]),
        (Column("tier", no_wrap=True), [load.tier for load in loads]),
        (Column("state", no_wrap=True), [tables.safe(load.state, COLOURS[load.state]) for load in loads]),
    ]
    numbers = [_numbers(load) for load in loads]
    for heading in numbers[0] if numbers else ():
        columns.append((Column(heading, justify="right", no_wrap=True), [each[heading] for each in numbers]))
    table = tables.fitting(columns, LEAST_NEEDED)
    problems = [tables.safe(f"{load.name}: {load.problem}", "red") for load in loads if load.problem]
    engines = [
        tables.safe(f"{load.name}: {load.kept:,} calls stayed with their rollout's engine, {load.moved:,} moved")
        for load in loads
        if load.kept or load.moved
    ]
    return Group(table, *engines, *problems)


def _numbers(load: ServerLoad) -> dict[str, Text]:
    return {
        "in flight": _shown(load.in_flight),
        "queued": _shown(load.queued, bad_from=1),
        "lag ms": _shown(load.loop_lag_ms, bad_from=LAGGING_MS),
        "CPU %": _shown(load.cpu_percent),
        "MiB": _shown(load.memory_mb),
        "req/s": _shown(load.requests_per_s, decimals=1),
        "err/s": _shown(load.errors_per_s, decimals=1, bad_from=0.05),
        "errors": _shown(load.errors, bad_from=1),
        "refused": _shown(load.refused, bad_from=1),
    }


def _shown(number: float | None, *, decimals: int = 0, bad_from: float = math.inf) -> Text:
    if number is None:
        return Text(tables.ABSENT)
    return Text(f"{number:,.{decimals}f}", style="red" if number >= bad_from else "")
