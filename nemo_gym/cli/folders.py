"""Commands on server folders: create one, test one or all, check one, list the packages of one."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_gym import config, paths
from nemo_gym.cli import running
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import CheckSettings, EntrypointSettings, PipListSettings, TestAllSettings, TestSettings
from nemo_gym.config.overrides import parse_override
from nemo_gym.config.sources import CONFIG_PATHS
from nemo_gym.config.suggestions import closest, search_dir_for
from nemo_gym.config.wording import counted
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.launcher.environments import package_listing
from nemo_gym.launcher.folder_tests import Tested, is_server_folder, run_tests, server_folders
from nemo_gym.scaffold import scaffold


def init(words: list[str]) -> int:
    """Create the folder of a new environment that lints, passes its tests and scores rollouts."""
    settings = Options("ng_init_resources_server", EntrypointSettings, takes_config=False).settings(words)
    running.say(scaffold(settings.entrypoint, Path.cwd(), _as_called).next_steps)
    return 0


def test(words: list[str]) -> int:
    """Run the tests of one environment with pytest, and return its exit code."""
    settings = Options("ng_test", TestSettings, takes_config=False).settings(words)
    folder = _folder_of(settings.entrypoint)
    if not (folder / "tests").is_dir():
        raise DataError(f"{folder}: no tests/ folder. Write a first test in tests/test_app.py.")
    tested = run_tests(folder)
    if not tested.has_tests:
        raise DataError(f"{folder / 'tests'}: no test found. Write a function test_… in tests/test_app.py.")
    if settings.should_validate_data:
        from nemo_gym.data.examples import check_examples

        check_examples(folder)
        running.say(f"✓ the examples of {settings.entrypoint} are complete")
    return tested.code


def test_all(words: list[str]) -> int:
    """Run the tests of every server folder in turn, and return 1 if any fails."""
    from nemo_gym.cli import tables

    summary = (
        "Run the tests of every server folder in the working folder and the --search-dirs. If they have none, test "
        "the shipped folders."
    )
    settings = Options("ng_test_all", TestAllSettings, summary, takes_config=False).settings(words)
    if settings.shard_index >= settings.num_shards:
        raise ConfigError(
            f"shard_index={settings.shard_index} is out of range: with num_shards={settings.num_shards}, use 0 to "
            f"{settings.num_shards - 1}."
        )
    tested: list[Tested] = []
    for folder in server_folders()[settings.shard_index :: settings.num_shards]:
        running.say(f"── {folder.parent.name}/{folder.name}")
        tested.append(run_tests(folder))
    tables.show(tables.tested(tested))
    running.say(_counted(tested))
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
    """Check an environment by playing in it, and return 1 if a promise is broken."""
    from nemo_gym.cli import tables
    from nemo_gym.contract import check_environment, open_environment, write_examples

    summary = (
        "Check an environment by playing in it: oracle, no-op, odd answers. The config is the one named after "
        "the folder; +config_paths=[…] selects another. ++<server>.resources_servers.<folder>.<key>=… sets a value."
    )
    line = Options("ng_check", CheckSettings, summary, takes_config=False, takes_other_keys=True).read(words)
    # The environment's config loads only with the model that the check adds. So only the settings are read here.
    own = [word for word in line.overrides if len(path := parse_override(word).path) == 1 and path[0] != CONFIG_PATHS]
    settings = settings_from(CheckSettings, config.load(line.paths, own, skip_dotenv=True).plain)
    if settings.write_examples and own != line.overrides:
        raise ConfigError(
            f"write_examples: example rollouts are made with the unchanged config of {settings.entrypoint}. Leave out "
            f"{', '.join(word for word in line.overrides if word not in own)}."
        )
    with open_environment(_folder_of(settings.entrypoint), line.overrides) as environment:
        further = list(read_rows(settings.rows_jsonl_fpath)) if settings.rows_jsonl_fpath else []
        findings = asyncio.run(check_environment(environment, further, for_publishing=not settings.unpublished))
        tables.show(tables.findings(findings))
        broken = sum(not finding.is_kept for finding in findings)
        if settings.write_examples and not broken:
            running.say(f"{counted(asyncio.run(write_examples(environment)), 'example rollout')} written")
    running.say(f"{settings.entrypoint}: {len(findings) - broken} of {len(findings)} promises kept")
    return 1 if broken else 0


def packages(words: list[str]) -> int:
    """List the packages of the environment in which a folder's server runs."""
    line = Options("ng_pip_list", PipListSettings, takes_config=False).read(words)
    run = config.load(line.paths, line.overrides, skip_dotenv=True)
    settings = settings_from(PipListSettings, run.plain)
    listing = package_listing(_folder_of(settings.entrypoint), run.plain)
    running.note(f"{settings.entrypoint} runs with {listing.python}")
    form = "json" if settings.as_json else settings.format
    extra = [*(["--format", form] if form else []), *(["--outdated"] if settings.outdated else [])]
    return subprocess.run([*listing.command, *extra], check=False).returncode


def _as_called(name: str) -> str:
    """Return the word that calls another program of this installation, with its folder unless the PATH finds it."""
    for folder in (Path(sys.argv[0]).parent, Path(sys.executable).parent):
        if (folder / name).is_file():
            found = shutil.which(name)
            is_found = found is not None and Path(found).parent.samefile(folder)
            return name if is_found else shlex.quote(str(folder / name))
    return name


def _folder_of(entrypoint: str) -> Path:
    folder = paths.find(entrypoint, is_server_folder)
    if folder is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        tier, _, name = f"resources_servers/{entrypoint}".removesuffix("/").rpartition("/")
        tier = Path(tier).name
        known = {
            path.name for root in paths.search_roots() for path in (root / tier).glob("*/") if is_server_folder(path)
        }
        guess = closest(name, known)
        listed = f"Folders in {tier}: {', '.join(sorted(known))}." if known else search_dir_for(tier)
        hint = f"Did you mean '{tier}/{guess}'?" if guess else listed
        raise DataError(f"entrypoint={entrypoint}: no folder with an app.py or a requirements.txt in {places}. {hint}")
    return folder
