"""The table of commands: noun, verb, script name, and the function that runs the command."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from nemo_gym import plugins
from nemo_gym.cli import printing
from nemo_gym.errors import ConfigError


class Command(NamedTuple):
    """One command, run as `ng <noun> <verb>` or by its own script."""

    noun: str
    verb: str
    """One word, followed by flags if several commands have this word, such as `run --no-serve`."""
    script: str
    """The script name; empty if the command can only be run with `ng`."""
    function: str
    """`module:function`. A module without a dot is in `nemo_gym.cli`."""
    summary: str
    starts_servers: bool = False
    """Whether the function takes a `WarmStarter`, which is created before the function is imported, to save time."""

    def imported(self) -> Callable[..., int]:
        """Import the function. Call this only to run the command, because some modules take long to import."""
        module, name = self.function.split(":")
        home = module if "." in module else f"nemo_gym.cli.{module}"
        function: Callable[..., int] = getattr(importlib.import_module(home), name)
        return function

    @property
    def spelled(self) -> str:
        """The command without its settings, such as `ng env start`."""
        return " ".join(filter(None, ("ng", self.noun, self.verb)))

    @property
    def usual(self) -> str:
        """The one spelling that help, messages and pages use, such as `ng_run` or `ng env check`."""
        return self.script if self.script in USUAL_SCRIPTS else self.spelled

    @property
    def is_alias(self) -> bool:
        """Whether this is only another name of `ng submit`."""
        return (self.noun, self.verb) == ("eval", "submit")


USUAL_SCRIPTS = {"ng_run", "ng_collect_rollouts", "ng_init_resources_server"}
"""The commands that are usually called by their script name."""

TAKE_A_VALUE = {"--search-dir", "--num-shards", "--shard-index"}
"""Flags of `ng_test_all` that take a value, so that the next word is not a folder name."""

NAME_A_FOLDER = ("--resources-server", "--environment", "--benchmark")

_SLURM = "nemo_gym.launcher.slurm.command"
COMMANDS = (
    Command("env", "start", "ng_run", "env:start", "Start the servers of a config and keep them up", True),
    Command("env", "status", "ng_status", "env:status", "Show the running servers and whether they answer"),
    Command("env", "top", "", "top:top", "Show live how busy the running servers are"),
    Command("env", "init", "ng_init_resources_server", "nemo_gym.cli.init.command:init",
            "Create the folder of a new environment or benchmark"),
    Command("env", "test", "ng_test", "folders:test", "Run the tests of one environment"),
    Command("env", "test", "ng_test_all", "folders:test_all", "Run the tests of all server folders"),
    Command("env", "check", "ng_check", "folders:check", "Check an environment by playing in it"),
    Command("env", "schema", "", "schema:schema",
            "Print the fields of a row, the tools and the settings of an environment"),
    Command("env", "packages", "ng_pip_list", "folders:packages", "List the packages that a server folder uses"),
    Command("env", "prefetch", "", "env:prefetch", "Build the virtual environments that folders need"),
    Command("env", "resolve", "ng_dump_config", "env:resolve", "Print the merged config as YAML, secrets masked"),
    Command("env", "pack", "", "nemo_gym.packaging.command:pack", "Check an environment and build a wheel of it"),
    Command("env", "add", "", "nemo_gym.packaging.command:add", "Install a wheel of an environment"),
    Command("env", "publish", "", "manifests:publish", "Print the manifest of an environment as JSON"),
    Command("env", "validate", "ng_validate", "env:validate", "Check a config, including each server's settings"),
    Command("eval", "run", "ng_e2e_collect_rollouts", "rollouts:run",
            "Start servers, collect rollouts, stop them", True),
    Command("eval", "run --no-serve", "ng_collect_rollouts", "rollouts:collect",
            "Collect rollouts from servers that ng_run has started"),
    Command("eval", "health-check", "", "health:health_check",
            "Try the models and a few tasks before the whole run", True),
    Command("", "submit", "", f"{_SLURM}:submit", "Submit a collection to Slurm"),
    Command("submit", "status", "", f"{_SLURM}:status", "Show the job and the progress of a submitted collection"),
    Command("submit", "logs", "", f"{_SLURM}:logs", "Print or follow the log of a submitted collection"),
    Command("submit", "cancel", "", f"{_SLURM}:cancel", "Drain and cancel a submitted collection"),
    Command("eval", "submit", "", f"{_SLURM}:submit", "Submit a collection to Slurm"),
    Command("eval", "prepare", "ng_prepare_benchmark", "data:prepare_benchmark", "Prepare the data of benchmarks"),
    Command("eval", "aggregate", "ng_aggregate_rollouts", "results:aggregate", "Merge shards and compute metrics"),
    Command("eval", "init", "", "nemo_gym.labelling.command:init", "Create a benchmark from a table of questions"),
    Command("eval", "label", "", "nemo_gym.labelling.command:label",
            "Have people label rollouts, and score the grader"),
    Command("eval", "reverify", "", "nemo_gym.labelling.reverify:reverify", "Grade stored rollouts again"),
    Command("eval", "compare", "ng_compare", "compare:compare", "Compare runs task by task, with intervals and gates"),
    Command("eval", "profile", "ng_reward_profile", "results:profile", "Compute reward statistics per task"),
    Command("", "view", "ng_view", "nemo_gym.viewer.command:view",
            "Look at rollouts in a browser, or export them as one HTML file"),
    Command("eval", "show", "", "nemo_gym.viewer.show:show", "Print rollouts as conversations"),
    Command("eval", "events", "", "events:events", "Print the events of a run, also while it goes on"),
    Command("eval", "ps", "", "control:ps", "List the running collections"),
    Command("eval", "ctl", "", "control:ctl", "Pause, retune, drain or stop a running collection"),
    Command("eval", "wait", "", "control:wait", "Wait for the end of a collection"),
    Command("list", "benchmarks", "ng_list_benchmarks", "catalog:benchmarks", "List the benchmarks"),
    Command("list", "environments", "", "catalog:environments", "List the environments"),
    Command("list", "resources-servers", "", "catalog:resources_servers", "List the resources servers"),
    Command("list", "agents", "", "catalog:agents", "List the agent servers"),
    Command("list", "models", "", "catalog:models", "List the model servers"),
    Command("", "search", "", "catalog:search", "Search environments, agents, models, … for a word"),
    Command("dataset", "collate", "", "data:collate", "Check and collate the datasets of a config"),
    Command("dataset", "collate", "ng_prepare_data", "data:prepare_data", "The same, with metrics next to the data"),
    Command("dataset", "render", "ng_materialize_prompts", "data:render", "Add the prompt to every row"),
    Command("dataset", "export", "ng_export", "export:dataset", "Turn scored rollouts into training data"),
    Command("dataset", "upload", "ng_upload_dataset_to_hf", "hubs:upload_to_hf", "Publish a file as a dataset"),
    Command("dataset", "upload --storage gitlab", "ng_upload_dataset_to_gitlab", "hubs:upload_to_gitlab",
            "Publish a file as a GitLab package"),
    Command("dataset", "download", "ng_download_dataset_from_hf", "hubs:download_from_hf", "Download a dataset"),
    Command("dataset", "download --storage gitlab", "ng_download_dataset_from_gitlab", "hubs:download_from_gitlab",
            "Download a file from a GitLab package"),
    Command("dataset", "rm", "ng_delete_dataset_from_gitlab", "hubs:delete_from_gitlab", "Delete a GitLab package"),
    Command("dataset", "migrate", "ng_gitlab_to_hf_dataset", "hubs:migrate", "Move a dataset to Hugging Face"),
    Command("deploy", "render", "", "nemo_gym.launcher.kubernetes.command:render",
            "Write the manifests of a config for Kubernetes, KubeRay or Compose"),
    Command("dev", "test", "ng_dev_test", "nemo_gym.published.developing:test", "Run the tests of this repository"),
    Command("dev", "reinstall", "ng_reinstall", "nemo_gym.published.developing:reinstall",
            "Reinstall this repository"),
    Command("", "help", "ng_help", "main:print_help", "List the commands"),
    Command("", "version", "ng_version", "main:print_version", "Print the version"),
)  # fmt: skip


@cache
def all_commands() -> tuple[Command, ...]:
    """Return all commands: those of this package, and those that other packages offer as entry points.

    Print a warning for a package whose commands cannot be imported.
    """
    found = list(COMMANDS)
    for name in plugins.names_in(plugins.COMMANDS):
        try:
            found.append(plugins.load(plugins.COMMANDS, name))
        except ConfigError as error:
            printing.note(f"warning: {error}")
    return tuple(found)


def by_script(script: str) -> Command | None:
    """Return the command with this script name, which begins with `ng_` or `nemo_gym_`; None if there is none."""
    name = script.replace("nemo_gym_", "ng_", 1)
    return next((command for command in COMMANDS if command.script and command.script == name), None)


def by_program(program: str) -> list[Command]:
    """Return the commands with this script name, or with this spelling, such as `ng env top`."""
    return [command for command in COMMANDS if program in (command.script, command.spelled)]


class Found(NamedTuple):
    """A command that was found on a command line, and its arguments."""

    command: Command
    rest: list[str]


def by_words(words: Sequence[str]) -> Found | None:
    """Return the command that these words begin with, and its arguments; None if there is no such command.

    If several commands match, the longest one is returned: `eval run --no-serve` rather than `eval run`.
    """
    # Look for commands of other packages last, because that takes about 50 ms.
    return _found_among(COMMANDS, words) or _found_among(all_commands(), words)


def _found_among(commands: Sequence[Command], words: Sequence[str]) -> Found | None:
    split = [part for word in words for part in (word.split("=", 1) if word.startswith("--storage=") else [word])]
    for command in sorted(commands, key=lambda each: -len(each.spelled)):
        verb, *flags = command.verb.split()
        name = [*filter(None, [command.noun]), verb]
        if split[: len(name)] == name and (rest := _without(split[len(name) :], flags)) is not None:
            return Found(_of_all_folders(command, rest), rest)
    return None


def _without(words: list[str], flags: list[str]) -> list[str] | None:
    """Return the words without these flags, or None if the words do not contain the flags next to each other."""
    for start in range(len(words) - len(flags) + 1):
        if words[start : start + len(flags)] == flags:
            return words[:start] + words[start + len(flags) :]
    return None


def _of_all_folders(command: Command, rest: list[str]) -> Command:
    """Return `ng_test_all` if the command is `env test` without a folder. Otherwise, return the command itself."""
    given = [word for before, word in pairwise(["", *rest]) if before not in TAKE_A_VALUE]
    names_one = any("entrypoint" in word or word.startswith(NAME_A_FOLDER) for word in rest) or any(
        not word.startswith(("-", "+", "~")) and "=" not in word for word in given
    )
    if command.script != "ng_test" or names_one or {"-h", "--help"} & {*rest}:
        return command
    return next(each for each in COMMANDS if each.script == "ng_test_all")
