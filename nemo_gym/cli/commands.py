"""Every command: its noun and verb, the script that it also is, and where it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Command(NamedTuple):
    """One command: `ng <noun> <verb>`, and the script of its own that it also is."""

    noun: str
    verb: str
    """One word, and behind it the flags that tell this command from others of the same word."""
    script: str
    """Empty where there is none."""
    function: str
    """`module:function` under `nemo_gym.cli`; imported only when the command is run."""
    summary: str

    @property
    def spelled(self) -> str:
        """The command as it is typed, without its settings."""
        return " ".join(filter(None, ("ng", self.noun, self.verb)))


TAKE_A_VALUE = {"--search-dir", "--num-shards", "--shard-index"}
"""Flags of the tests of all folders; what stands behind them is no folder's name."""

COMMANDS = (
    Command("env", "start", "ng_run", "env:start", "Start the servers of a config and keep them up"),
    Command("env", "status", "ng_status", "env:status", "Show which servers run, and whether they answer"),
    Command("env", "init", "ng_init_resources_server", "folders:init", "Write the folder of a new environment"),
    Command("env", "test", "ng_test", "folders:test", "Run the tests of one environment (+entrypoint=…)"),
    Command("env", "test", "ng_test_all", "folders:test_all", "Run the tests of all server folders"),
    Command("env", "check", "ng_check", "folders:check", "Check an environment by acting in it"),
    Command("env", "packages", "ng_pip_list", "folders:packages", "List the packages that a folder runs with"),
    Command("env", "prefetch", "", "env:prefetch", "Build the environments that folders want of their own"),
    Command("env", "resolve", "ng_dump_config", "env:resolve", "Print the merged config, secrets masked"),
    Command("env", "validate", "ng_validate", "env:validate", "Check a config, down to each server's own settings"),
    Command("eval", "run", "ng_e2e_collect_rollouts", "rollouts:run", "Start servers, collect rollouts, stop them"),
    Command(
        "eval",
        "run --no-serve",
        "ng_collect_rollouts",
        "rollouts:collect",
        "Collect rollouts from servers that are up",
    ),
    Command("eval", "prepare", "ng_prepare_benchmark", "data:prepare_benchmark", "Make the data of benchmarks"),
    Command("eval", "aggregate", "ng_aggregate_rollouts", "results:aggregate", "Merge shards and measure them"),
    Command("eval", "reverify", "", "reverify:reverify", "Grade stored rollouts again"),
    Command("eval", "profile", "ng_reward_profile", "results:profile", "Tell how rewards spread over each task"),
    Command("list", "benchmarks", "ng_list_benchmarks", "catalog:benchmarks", "List the benchmarks"),
    Command("list", "environments", "", "catalog:environments", "List the environments"),
    Command("list", "resources-servers", "", "catalog:resources_servers", "List the resources servers"),
    Command("list", "agents", "", "catalog:agents", "List the agent servers"),
    Command("list", "models", "", "catalog:models", "List the model servers"),
    Command("", "search", "", "catalog:search", "Look for environments, agents, models, … by words"),
    Command("dataset", "collate", "ng_prepare_data", "data:collate", "Check and gather the datasets of a config"),
    Command("dataset", "render", "ng_materialize_prompts", "data:render", "Give every row its prompt"),
    Command("dataset", "upload", "ng_upload_dataset_to_hf", "hubs:upload_to_hf", "Publish a dataset"),
    Command(
        "dataset",
        "upload --storage gitlab",
        "ng_upload_dataset_to_gitlab",
        "hubs:upload_to_gitlab",
        "Publish a dataset as a package of GitLab",
    ),
    Command("dataset", "download", "ng_download_dataset_from_hf", "hubs:download_from_hf", "Fetch a dataset"),
    Command(
        "dataset",
        "download --storage gitlab",
        "ng_download_dataset_from_gitlab",
        "hubs:download_from_gitlab",
        "Fetch a dataset from a package of GitLab",
    ),
    Command("dataset", "rm", "ng_delete_dataset_from_gitlab", "hubs:delete_from_gitlab", "Delete it from GitLab"),
    Command("dataset", "migrate", "ng_gitlab_to_hf_dataset", "hubs:migrate", "Publish it, then delete it from GitLab"),
    Command("dev", "test", "ng_dev_test", "dev:test", "Run the tests of this repository"),
    Command("dev", "reinstall", "ng_reinstall", "dev:reinstall", "Install this repository again"),
    Command("", "help", "ng_help", "main:print_help", "List the commands"),
    Command("", "version", "ng_version", "main:print_version", "Print the version"),
)


def by_script(script: str) -> Command | None:
    """The command that a script of this name is, under either of its two prefixes."""
    name = script.replace("nemo_gym_", "ng_", 1)
    return next((command for command in COMMANDS if command.script and command.script == name), None)


class Found(NamedTuple):
    """A command, and the words that are left for it."""

    command: Command
    rest: list[str]


def by_words(words: Sequence[str]) -> Found | None:
    """The command that these words begin with: `eval run --no-serve` says more than `eval run` does."""
    split = [part for word in words for part in (word.split("=", 1) if word.startswith("--storage=") else [word])]
    for command in sorted(COMMANDS, key=lambda each: -len(each.verb)):
        name, flags = _parts(command)
        if split[: len(name)] == name and (rest := _without(split[len(name) :], flags)) is not None:
            return Found(_of_all_folders(command, rest), rest)
    return None


def _parts(command: Command) -> tuple[list[str], list[str]]:
    verb, *flags = command.verb.split()
    return [*filter(None, [command.noun]), verb], flags


def _without(words: list[str], flags: list[str]) -> list[str] | None:
    """The words less these neighbours; None where they are not among them."""
    for start in range(len(words) - len(flags) + 1):
        if words[start : start + len(flags)] == flags:
            return words[:start] + words[start + len(flags) :]
    return None


def _of_all_folders(command: Command, rest: list[str]) -> Command:
    """`env test` that names no folder tests all of them."""
    given = [word for before, word in pairwise(["", *rest]) if before not in TAKE_A_VALUE]
    names_one = any("entrypoint" in word or word.startswith("--resources-server") for word in rest) or any(
        not word.startswith(("-", "+", "~")) and "=" not in word for word in given
    )
    if command.script != "ng_test" or names_one or {"-h", "--help"} & {*rest}:
        return command
    return next(each for each in COMMANDS if each.script == "ng_test_all")
