"""Commands that test and check the folders of servers and environments, and list their packages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nemo_gym import paths
from nemo_gym.cli import printing
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.selectors import SELECTORS
from nemo_gym.cli.settings import CheckSettings, PackagesSettings, TestAllSettings, TestSettings
from nemo_gym.config.loading import load
from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.config.sources import CONFIG_PATHS
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.launcher.environments import interpreter_of, pip
from nemo_gym.launcher.folder_tests import Tested, is_server_folder, run_tests, server_folders
from nemo_gym.plugins import environment_roots
from nemo_gym.text import closest, counted, search_dir_for, visible

if TYPE_CHECKING:
    from nemo_gym.contract.watching import Step

ANY_FOLDER = ("resources_server", "environment", "benchmark")
FIRST_S = 5.0
"""Seconds after which a promise is reported outside a terminal. Each further report takes twice as long."""
ERASE = "\r\x1b[K"


def test(words: list[str]) -> int:
    """Run the tests of one environment with pytest, and return its exit code."""
    line = Options("ng_test", TestSettings, takes_config=False, names_folders=ANY_FOLDER).read(words)
    plain = load(line.paths, line.overrides, skip_dotenv=True).plain
    settings = settings_from(TestSettings, plain)
    folder = folder_of(settings.entrypoint)
    if not (folder / "tests").is_dir() and _is_packaged(folder):
        raise DataError(f"{folder}: an installed package does not contain tests. Run them in a checkout.")
    if not (folder / "tests").is_dir():
        raise DataError(f"{folder}: no tests/ folder. Write a first test in tests/test_app.py.")
    tested = run_tests(folder, plain)
    if not tested.has_tests:
        raise DataError(f"{folder / 'tests'}: no test found. Write a function test_… in tests/test_app.py.")
    if settings.should_validate_data:
        from nemo_gym.data.examples import check_examples

        check_examples(folder)
        printing.say(f"✓ the examples of {settings.entrypoint} are complete")
    return tested.code


def test_all(words: list[str]) -> int:
    """Run the tests of every server folder in turn, and return 1 if any fails."""
    from nemo_gym.cli import tables

    summary = (
        "Run the tests of every server folder in the working folder and the --search-dirs. If they have none, test "
        "the shipped folders."
    )
    line = Options("ng_test_all", TestAllSettings, summary, takes_config=False).read(words)
    plain = load(line.paths, line.overrides, skip_dotenv=True).plain
    settings = settings_from(TestAllSettings, plain)
    if settings.shard_index >= settings.num_shards:
        raise ConfigError(
            f"shard_index={settings.shard_index} is out of range: with num_shards={settings.num_shards}, use 0 to "
            f"{settings.num_shards - 1}."
        )
    tested: list[Tested] = []
    for folder in server_folders()[settings.shard_index :: settings.num_shards]:
        printing.say(f"── {ServerFolder.of(folder).name}")
        tested.append(run_tests(folder, plain))
    tables.show(tables.tested(tested))
    printing.say(_counted(tested))
    lacks_tests = settings.fail_on_total_and_test_mismatch and not all(each.has_tests for each in tested)
    return 1 if lacks_tests or not all(each.is_good for each in tested) else 0


def _counted(tested: Sequence[Tested]) -> str:
    failed = [each.name for each in tested if not each.is_good]
    without = [each.name for each in tested if not each.has_tests]
    passed = len(tested) - len(failed) - len(without)
    text = f"{counted(len(tested), 'folder')} = {passed} passed + {len(failed)} failed + {len(without)} without tests"
    kinds = (("failed", failed), ("without tests", without))
    named = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names)
    return f"{text} ({named})" if named else text


def check(words: list[str]) -> int:
    """Check an environment by running rollouts in it, and return 1 if a check fails."""
    from nemo_gym.cli import tables
    from nemo_gym.contract.attacking import attack_in_child
    from nemo_gym.contract.checks import check_environment
    from nemo_gym.contract.environment import open_environment
    from nemo_gym.contract.examples import write_examples
    from nemo_gym.contract.tasks import sample_of, tasks_in
    from nemo_gym.data.obtain import Obtainer
    from nemo_gym.web.threads import has_stuck_threads

    summary = (
        "Check an environment by playing in it: oracle, no-op, odd answers. The config is the one named after "
        "the folder; --config FILE selects another config. "
        "--<server>.resources_servers.<folder>.<key> VALUE sets a value."
    )
    options = Options(
        "ng_check", CheckSettings, summary, takes_config=False, takes_other_keys=True, names_folders=ANY_FOLDER
    )
    line = options.read(words)
    # Read only the settings of this command here. The environment's config cannot be loaded yet, because it lacks the
    # model that the check adds.
    own = [each for each in line.overrides if len(each.path) == 1 and each.path[0] != CONFIG_PATHS]
    settings = settings_from(CheckSettings, load(line.paths, own, skip_dotenv=True).plain)
    if settings.write_examples and own != line.overrides:
        raise ConfigError(
            f"write_examples: example rollouts are made with the unchanged config of {settings.entrypoint}. Leave out "
            f"{', '.join(each.word for each in line.overrides if each not in own)}."
        )
    folder = folder_of(settings.entrypoint)
    with open_environment(folder, line.overrides) as environment:
        further = tasks_in(settings.rows_jsonl_fpath) if settings.rows_jsonl_fpath else []
        if settings.dataset is not None:
            path_of = Obtainer(environment.run, printing.note).path_of
            further += sample_of(environment, settings.dataset, path_of, count=settings.sample, seed=settings.seed)
        with _progress() as show:
            limits: dict[str, Any] = {"timeout_s": settings.timeout, "on_step": show, "on_stuck": _give_up}
            if settings.attack:
                limits |= {"margin": settings.attack_margin, "rollouts": settings.attack_rollouts}
                findings = attack_in_child(environment, further, **limits)
            else:
                for_publishing = not (settings.unpublished or _is_packaged(folder))
                checking = check_environment(environment, further, for_publishing=for_publishing, **limits)
                findings = asyncio.run(checking)
        tables.show(tables.findings(findings, "attack" if settings.attack else "promise"))
        broken = sum(not finding.is_kept for finding in findings)
        if settings.write_examples and not broken:
            printing.say(f"{counted(asyncio.run(write_examples(environment)), 'example rollout')} written")
    kept = f"{len(findings) - broken} of {len(findings)} promises kept"
    won = counted(broken, "finding") if broken else "no exploit found"
    printing.say(f"{settings.entrypoint}: {won if settings.attack else kept}")
    if has_stuck_threads():
        # Do not wait at the end of the process for code in threads that does not end.
        _end(1)
    return 1 if broken else 0


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """Yield a function that shows the promise being tested, its time so far and the running step.

    In a terminal, it changes one line. Otherwise, it prints a line for a promise that takes long.
    """
    is_terminal, promise, next_s = sys.stderr.isatty(), "", FIRST_S

    def show(step: Step) -> None:
        nonlocal promise, next_s
        if is_terminal:
            print(end=f"{ERASE}{visible(str(step))}", file=sys.stderr, flush=True)  # noqa: T201 - the CLI prints
            return
        if step.promise != promise:
            promise, next_s = step.promise, FIRST_S
        if step.seconds >= next_s:
            next_s *= 2
            printing.note(str(step))

    try:
        yield show
    finally:
        if is_terminal:
            print(end=ERASE, file=sys.stderr, flush=True)  # noqa: T201 - the CLI prints


def _give_up(step: Step) -> None:
    printing.note(f"Error: {step}. It does not end, and ignores interruptions.")
    _end(1)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    os._exit(code)


def packages(words: list[str]) -> int:
    """List the packages of the Python environment in which a folder's server runs."""
    line = Options("ng_pip_list", PackagesSettings, takes_config=False).read(words)
    run = load(line.paths, line.overrides, skip_dotenv=True, needs_variables=False)
    settings = settings_from(PackagesSettings, run.plain)
    python = interpreter_of(folder_of(settings.entrypoint, is_server_folder), run.plain)
    printing.note(f"{settings.entrypoint} runs with {python}")
    form = "json" if settings.as_json else settings.format
    extra = [*(["--format", form] if form else []), *(["--outdated"] if settings.outdated else [])]
    return subprocess.run([*pip("list", python, run.plain), *extra], check=False).returncode


def _is_folder(path: Path) -> bool:
    # Import the module here, because most commands on folders do not need it.
    from nemo_gym.contract.environment import is_composed

    return is_server_folder(path) or is_composed(path)


def _is_packaged(folder: Path) -> bool:
    """Return whether a folder belongs to an installed package, which leaves out the tests."""
    is_checkout = (paths.INSTALL_ROOT / "pyproject.toml").exists()
    return any(map(folder.is_relative_to, [*environment_roots(), *([] if is_checkout else [paths.INSTALL_ROOT])]))


def folder_of(entrypoint: str, accepts: Callable[[Path], bool] = _is_folder) -> Path:
    """Return the folder of a server, environment or benchmark. Raise `DataError` with suggestions if it is missing."""
    folder = paths.find(entrypoint, accepts)
    if folder is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        tier, _, name = f"resources_servers/{entrypoint}".removesuffix("/").rpartition("/")
        tier = Path(tier).name
        known = {path.name for root in paths.search_roots() for path in (root / tier).glob("*/") if accepts(path)}
        guess = closest(name, known)
        listed = f"Folders in {tier}: {', '.join(sorted(known))}." if known else search_dir_for(tier)
        flag = _flag_for(tier, name, accepts)
        hint = f"Did you mean '{flag}'?" if flag else f"Did you mean '{tier}/{guess}'?" if guess else listed
        files = "an app.py or a requirements.txt" if tier in SERVER_TYPES else "a config.yaml"
        raise DataError(f"entrypoint={entrypoint}: no folder with {files} in {places}. {hint}")
    return folder


def _flag_for(tier: str, name: str, accepts: Callable[[Path], bool]) -> str | None:
    """Return the option that selects the folder of this name outside `tier`, or None if there is no such folder."""
    others = (selector for selector in SELECTORS if selector.key in ANY_FOLDER and selector.folder != tier)
    return next((f"{each.flag} {name}" for each in others if paths.find(f"{each.folder}/{name}", accepts)), None)
