"""Commands on servers and their config: start, status, resolve, validate, prefetch.

Frameworks import `RunHelper` and the other public names of `nemo_gym.cli` from here.
"""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from nemo_gym import cli
from nemo_gym.calls.running import live_runs
from nemo_gym.cli import manifests, printing, running
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.selectors import environment_config
from nemo_gym.cli.settings import JsonSettings, NoSettings, StartSettings, ValidateSettings
from nemo_gym.cli.signals import stop_signals
from nemo_gym.config.loading import load
from nemo_gym.config.masking import masked_yaml
from nemo_gym.config.overrides import Override
from nemo_gym.config.without_model import load_as_written, load_with_stand_in, load_without_model, stand_ins_of
from nemo_gym.contract.manifest import read_manifest
from nemo_gym.data.benchmarks import check_prepared
from nemo_gym.data.prepare import unobtainable_files
from nemo_gym.launcher.environments import interpreters
from nemo_gym.launcher.local import launch
from nemo_gym.launcher.warm import WarmStarter
from nemo_gym.memory import settle_memory
from nemo_gym.text import counted

LOOK_AGAIN_S = 1.0
ECHO_S = 0.5
"""Seconds during which a second signal is ignored, because a terminal and a wrapper may both send the same one."""


class _Stopped(BaseException):
    """The exception that a stop signal raises. If it interrupts the start, its notes name the stopped servers."""


class _Ending:
    """The flags that a stop signal sets. The exception alone is not enough, as it may get lost during an import."""

    def __init__(self) -> None:
        self.is_due = False
        self.is_normal = False
        """Whether a stop signal ends the command with exit code 0. True once all servers are up."""
        self.exit_code = 0
        self._noted_at = -ECHO_S
        for number in stop_signals():
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_due = True
        self.exit_code = 0 if self.is_normal else 128 + number
        is_echo = time.monotonic() - self._noted_at < ECHO_S
        self._noted_at = time.monotonic()
        if not is_echo:
            raise _Stopped


def start(words: list[str], starter: WarmStarter | None = None) -> int:
    """Start the servers of a config, and keep them up until Ctrl-C or SIGTERM, or until a server fails for good."""
    line = Options("ng_run", StartSettings, takes_model=True).read(words)
    ending = _Ending()
    try:
        return _keep_up(line.paths, line.overrides, starter, ending)
    except _Stopped as stopped:
        if ending.exit_code:
            printing.note(running.interruption(stopped))
        return ending.exit_code


def _keep_up(files: list[str], overrides: list[Override], starter: WarmStarter | None, ending: _Ending) -> int:
    run = running.load_to_start(files, overrides)
    settings = settings_from(StartSettings, run.plain)
    with running.launch_for(run, settings, starter, on_line=printing.print_line) as servers:
        if settings.dry_run:
            printing.say(f"{counted(len(run.servers), 'server')} can be started")
            return 0
        running.await_model_endpoints(servers, settings)
        printing.say(f"{len(run.servers_here)} / {len(run.servers)} servers ready")
        running.show_instances(servers.instances)
        # Return unused memory to the system, because this process only waits from now on. `launch_for` must not do
        # this, because `RunHelper` calls it in programs that manage their own memory.
        settle_memory()
        ending.is_normal = True
        head = servers.run.head
        url = head.url_at(head.advertised_host or head.host)
        printing.say(f"{'joined the run at' if run.joins else 'head server:'} {url}   (Ctrl-C stops all)")
        if not run.joins and (others := [name for name in run.servers if name not in run.servers_here]):
            printing.say(
                f"start {', '.join(others)} on other machines, with the same config and run token: ng_run … "
                f"--only {','.join(others)} --join {head.outward_url}"
            )
        while not ending.is_due:
            servers.watch(timeout_s=LOOK_AGAIN_S)
        return 0


def status(words: list[str]) -> int:
    """Show every server of the current run and whether it answers. Return 1 if any server does not."""
    line = Options("ng_status", JsonSettings).read(words)
    run = load(line.paths, line.overrides, needs_variables=False)
    settings = settings_from(JsonSettings, run.plain)
    servers = running.ask_for_servers(running.find_head(run, live_runs()), run.settings.run_token or None)
    if settings.as_json:
        printing.say_json(servers)
    else:
        running.show_status(servers)
    return 0 if all(server["status"] == "success" for server in servers) else 1


def resolve(words: list[str]) -> int:
    """Print the merged configuration as YAML, with secrets masked."""
    line = Options("ng_dump_config", NoSettings, takes_model=True).read(words)
    printing.say_document(masked_yaml(load_as_written(line.paths, line.overrides)))
    return 0


def validate(words: list[str]) -> int:
    """Check a configuration, including the settings that each server's class defines."""
    if words[:1] == ["--manifest"] or "--sync" in words:
        return manifests.validate(words[1:])
    options = Options("ng_validate", ValidateSettings, takes_model=True, named_by="name")
    line = options.read(words)
    own = [each for each in line.overrides if each.path[0] in ("name", "kind", "json")]
    named = settings_from(ValidateSettings, load([], own, skip_dotenv=True).plain)
    files = line.paths
    if named.name is not None:
        is_file = named.name.endswith((".yaml", ".yml"))
        files = [*files, named.name if is_file else environment_config(named.name, named.kind)]
        if (manifest := manifests.manifest_next_to(files[-1])).is_file():
            read_manifest(manifest)
    given = running.with_checked_pairing(load_with_stand_in(files, line.overrides))
    unset = {name: server.unset_variables for name, server in given.servers.items() if server.unset_variables}
    run = given.with_servers({name: each for name, each in given.servers.items() if name not in unset})
    settings = settings_from(ValidateSettings, run.plain)
    check_prepared(run)
    with launch(run, dry_run=True, notice=printing.note, ready_timeout_s=settings.ready_timeout_s):
        pass
    for name, problems in unset.items():
        printing.note(f"note: {name} was not checked: {' '.join(problems)}")
    for pairing in given.settings.unsupported_pairings:
        printing.note(f"note: unsupported pairing: {pairing}")
    for missing in unobtainable_files(given):
        printing.note(f"note: {missing}")
    absent = stand_ins_of(run)
    checked = [name for name in run.servers if name not in absent]
    if named.as_json:
        printing.say_json({"servers": checked, "without": absent})
        return 0
    note = f" (without {', '.join(absent)}, which no file defines; --model-type adds it)" if absent else ""
    printing.say(f"✓ {counted(len(checked), 'server')}: {', '.join(checked)}{note}")
    return 0


def prefetch(words: list[str]) -> int:
    """Build the virtual environment of every folder that needs a separate one, without starting servers."""
    line = Options("ng env prefetch", NoSettings).read(words)
    run = load_without_model(line.paths, line.overrides)
    built = interpreters(run, auto_install=True, notice=printing.note)
    for name, python in built.items():
        printing.say(f"{name}: {python}")
    printing.say(f"{len(built)} of {counted(len(run.servers), 'server')} with a separate virtual environment")
    return 0


def __getattr__(name: str) -> Any:
    if name not in cli.__all__:
        raise AttributeError(f"module 'nemo_gym.cli.env' has no attribute '{name}'")
    return getattr(cli, name)
