"""Commands on servers and environments: start, status, init, test, resolve, validate."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from nemo_gym import paths
from nemo_gym.cli import running
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import (
    CheckSettings,
    EntrypointSettings,
    NoSettings,
    StartSettings,
    StatusSettings,
    TestSettings,
)
from nemo_gym.config.suggestions import closest
from nemo_gym.errors import DataError
from nemo_gym.launcher.warm import WarmStarter, is_supported

# As in our own repository: a folder's tests pass or fail alike wherever it lies.
PYTEST = ("-m", "pytest", "--import-mode=importlib", "-o", "asyncio_mode=auto",
          "-o", "asyncio_default_fixture_loop_scope=function")  # fmt: skip


class _Stopped(Exception):
    """SIGTERM or SIGHUP was received."""


def start(words: list[str]) -> int:
    """Start the servers of a config and keep them up until Ctrl-C, SIGTERM, or until one of them ends."""
    options = Options("ng_run", "Start the servers of a config and keep them up.", StartSettings, takes_model=True)
    line = options.read(words)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What nohup ignores stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    # Started before the YAML is read: its imports take longer than everything else together.
    starter = WarmStarter() if is_supported() else None
    try:
        return _keep_up(line.paths, line.overrides, starter)
    except (KeyboardInterrupt, _Stopped):
        return 0
    finally:
        if starter is not None:
            starter.close()


def _keep_up(files: list[str], overrides: list[str], starter: WarmStarter | None) -> int:
    from nemo_gym import config

    run = config.load(files, overrides, require_servers=True)
    settings = settings_from(StartSettings, run.plain)
    with running.launch_for(run, settings, starter, on_line=running.print_line) as servers:
        if settings.dry_run:
            running.say(f"{running.servers_counted(len(run.servers))} can be started")
            return 0
        running.await_model_endpoints(servers, settings.model_endpoint_readiness_timeout_seconds)
        running.say(f"{len(run.servers)} / {len(run.servers)} servers ready")
        running.show_instances(servers.instances)
        running.say(f"head server: http://{servers.run.head.host}:{servers.run.head.port}   (Ctrl-C stops all)")
        while True:
            servers.watch(timeout_s=3600.0)


def status(words: list[str]) -> int:
    """Show every server of the run that is up, and whether it answers; exit code 1 if one does not."""
    options = Options("ng_status", "Show which servers run, and whether they answer.", StatusSettings)
    from nemo_gym import config

    line = options.read(words)
    run = config.load(line.paths, line.overrides)
    settings = settings_from(StatusSettings, run.plain)
    servers = running.ask_for_servers(running.find_head(run))
    if settings.as_json:
        running.say(orjson.dumps(servers, option=orjson.OPT_INDENT_2).decode())
    else:
        running.show_status(servers)
    return 0 if all(server["status"] == "success" for server in servers) else 1


def resolve(words: list[str]) -> int:
    """Print the merged configuration as YAML, secrets masked."""
    options = Options(
        "ng_dump_config", "Print the merged config as YAML, secrets masked.", NoSettings, takes_model=True
    )
    from nemo_gym import config

    line = options.read(words)
    running.say(config.masked_yaml(config.load(line.paths, line.overrides)).rstrip())
    return 0


def validate(words: list[str]) -> int:
    """Check a configuration, down to the settings that each server's own class types."""
    options = Options(
        "ng_validate", "Check a config, down to each server's own settings.", NoSettings, takes_model=True
    )
    from nemo_gym import config

    line = options.read(words)
    run = config.load(line.paths, line.overrides, require_servers=True)
    from nemo_gym.launcher import launch

    with launch(run, dry_run=True):
        pass
    names = ", ".join(run.servers)
    running.say(f"✓ {running.servers_counted(len(run.servers))}: {names}")
    return 0


def init(words: list[str]) -> int:
    """Write the folder of a new environment: it lints, passes its own test and scores rollouts as it stands."""
    options = Options(
        "ng_init_resources_server", "Write the folder of a new environment.", EntrypointSettings, takes_config=False
    )
    from nemo_gym import config
    from nemo_gym.scaffold import scaffold

    line = options.read(words)
    settings = settings_from(EntrypointSettings, config.load(line.paths, line.overrides, skip_dotenv=True).plain)
    made = scaffold(settings.entrypoint, Path.cwd())
    running.say(made.next_steps)
    return 0


def test(words: list[str]) -> int:
    """Run the tests of one environment with pytest; its exit code."""
    options = Options("ng_test", "Run the tests of one environment.", TestSettings, takes_config=False)
    from nemo_gym import config

    line = options.read(words)
    settings = settings_from(TestSettings, config.load(line.paths, line.overrides, skip_dotenv=True).plain)
    folder = _folder_of(settings.entrypoint)
    # Its tests import it by name, `resources_servers.<name>.app`, from whichever root it was found in.
    roots = os.pathsep.join(filter(None, [str(folder.parent.parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *PYTEST, str(folder / "tests")]
    code = subprocess.run(command, env={**os.environ, "PYTHONPATH": roots}, check=False).returncode
    if settings.should_validate_data:
        from nemo_gym.data.examples import check_examples

        check_examples(folder)
        running.say(f"✓ the examples of {settings.entrypoint} are complete")
    return code


def check(words: list[str]) -> int:
    """Check what an environment's folder promises, by acting in it; exit code 1 if a promise is broken."""
    options = Options(
        "ng_check",
        "Check an environment by acting in it: oracle, no-op, odd answers.",
        CheckSettings,
        takes_config=False,
    )
    from nemo_gym import config
    from nemo_gym.cli import tables
    from nemo_gym.contract import check_environment, open_environment, write_examples
    from nemo_gym.jsonl import read_rows

    line = options.read(words)
    settings = settings_from(CheckSettings, config.load(line.paths, line.overrides, skip_dotenv=True).plain)
    with open_environment(_folder_of(settings.entrypoint)) as environment:
        further = list(read_rows(settings.rows_jsonl_fpath)) if settings.rows_jsonl_fpath else []
        findings = asyncio.run(check_environment(environment, further))
        tables.console().print(tables.findings(findings))
        broken = sum(not finding.is_kept for finding in findings)
        if settings.write_examples and not broken:
            running.say(f"{asyncio.run(write_examples(environment))} example rollouts written")
    running.say(f"{settings.entrypoint}: {len(findings) - broken} of {len(findings)} promises kept")
    return 1 if broken else 0


def _folder_of(entrypoint: str) -> Path:
    folder = paths.find(entrypoint, lambda path: (path / "app.py").is_file())
    if folder is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        tier, _, name = f"resources_servers/{entrypoint}".removesuffix("/").rpartition("/")
        tier = Path(tier).name
        known = {file.parent.name for root in paths.search_roots() for file in (root / tier).glob("*/app.py")}
        guess = closest(name, known)
        hint = f"Did you mean '{tier}/{guess}'?" if guess else f"In {tier} there are: {', '.join(sorted(known))}."
        raise DataError(f"entrypoint={entrypoint}: no folder with an app.py in {places}. {hint}")
    return folder


def _stop(number: int, frame: FrameType | None) -> Any:
    raise _Stopped
