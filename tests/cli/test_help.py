"""Tests that `--help` lists each parameter with its meaning, its type and its default."""

from __future__ import annotations

import re

import pytest

from nemo_gym.cli.options import ModelSettings
from nemo_gym.cli.rollouts import EndToEndSettings
from nemo_gym.cli.settings import JsonSettings, NoSettings, StartSettings
from nemo_gym.rollouts.job import CollectJob

pytestmark = pytest.mark.slow

COMMANDS = {
    "ng_run": [StartSettings, ModelSettings],
    "ng_status": [JsonSettings],
    "ng_validate": [NoSettings, ModelSettings],
    "ng_dump_config": [NoSettings, ModelSettings],
    "ng_collect_rollouts": [CollectJob],
    "ng_e2e_collect_rollouts": [EndToEndSettings, ModelSettings],
}


@pytest.mark.parametrize("program", COMMANDS)
def test_help_lists_every_parameter(shared_workplace, program):
    finished = shared_workplace.run(program, "--help")
    assert (finished.code, finished.err) == (0, "")
    text = re.sub(r"\s+", " ", finished.out)
    for model in COMMANDS[program]:
        for name, info in model.model_fields.items():
            flag = (info.alias or name).replace("_", "-")
            meaning = re.escape(info.description.replace("\n", " "))
            shown = re.search(rf" --{flag}\b[^\[]* {meaning} \[[\w|]+, (required|default [^\]]+)\]", text)
            assert shown, f"{flag} is not in the help of {program}"
            assert (shown.group(1) == "required") is info.is_required()


@pytest.mark.parametrize("word", ["-h", "+h=true", "+help=true"])
def test_help_has_several_spellings(shared_workplace, word):
    """Other words on the command line are ignored."""
    assert shared_workplace.run("ng_run", "+config_paths=[nowhere.yaml]", word) == shared_workplace.run(
        "ng_run", "--help"
    )


def test_list_of_commands_has_help(shared_workplace):
    assert shared_workplace.run("ng_help", "--help") == shared_workplace.run("ng", "--help")


@pytest.mark.parametrize("words", [("env", "start"), ("ng_run",)])
def test_help_command_prints_the_commands_own_help(shared_workplace, words):
    assert shared_workplace.run("ng", "help", *words) == shared_workplace.run("ng_run", "--help")


def test_help_of_unknown_command_is_an_error(shared_workplace):
    finished = shared_workplace.run("ng", "help", "env", "strat")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("Error: 'ng env strat' is not a command. Did you mean 'start'?")


def test_help_starts_with_the_usual_command_name(shared_workplace):
    assert shared_workplace.run("ng", "env", "start", "--help").out.splitlines()[:3] == [
        "usage: ng_run [--flag VALUE …]",
        "",
        "Start the servers of a config and keep them up.",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "--split train|validation|benchmark|example The type of the agents' datasets to collect. Default: benchmark, "
        "or the only type that they have. [train|validation|benchmark|example, default none]",
        "--concurrency INT, --num-samples-in-parallel INT The maximum number of rollouts at once. With auto, it "
        "adapts to the measured throughput. [int|auto, default 1024]",
        "--resume (=force), --resume-from-cache (=force) Resume the earlier run with this output. With force, "
        "resume it even if its rows or its model have changed. [bool|force, default false]",
        "--temperature FLOAT The sampling temperature. [float, default: the row's value]",
    ],
)
def test_help_shows_each_parameter_in_full(shared_workplace, line):
    text = shared_workplace.run("ng", "eval", "run", "--help").out
    assert line in re.sub(r"\s+", " ", text)
