"""`--help` tells all there is to set: each parameter with its meaning, its type and its default."""

from __future__ import annotations

import re

import pytest

from nemo_gym.cli.options import ModelSettings
from nemo_gym.cli.rollouts import EndToEndSettings
from nemo_gym.cli.settings import NoSettings, StartSettings, StatusSettings
from nemo_gym.rollouts.job import CollectJob

COMMANDS = {
    "ng_run": [StartSettings, ModelSettings],
    "ng_status": [StatusSettings],
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
            key = info.alias or name
            meaning = re.escape(info.description.replace("\n", " "))
            shown = re.search(rf" --\S+[^\[]* {meaning} \[\+{key}: [\w|]+, (required|default [^\]]+)\]", text)
            assert shown, f"{key} is not in the help of {program}"
            assert (shown.group(1) == "required") is info.is_required()


@pytest.mark.parametrize("word", ["-h", "+h=true", "+help=true"])
def test_help_is_asked_for_in_several_ways(shared_workplace, word):
    """Beside other words too, and without a look at what they say."""
    assert shared_workplace.run("ng_run", "+config_paths=[nowhere.yaml]", word) == shared_workplace.run(
        "ng_run", "--help"
    )


def test_the_list_of_commands_has_help_too(shared_workplace):
    assert shared_workplace.run("ng_help", "--help") == shared_workplace.run("ng", "--help")


@pytest.mark.parametrize("words", [("env", "start"), ("ng_run",)])
def test_help_of_a_command_is_what_the_command_itself_says(shared_workplace, words):
    assert shared_workplace.run("ng", "help", *words) == shared_workplace.run("ng_run", "--help")


def test_help_of_what_is_no_command_is_told(shared_workplace):
    finished = shared_workplace.run("ng", "help", "env", "strat")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("Error: 'ng env strat' is no command. Did you mean 'start'?")


def test_help_begins_with_both_names_of_the_command(shared_workplace):
    assert shared_workplace.run("ng", "env", "start", "--help").out.splitlines()[:4] == [
        "usage: ng_run [--flag VALUE …] [+key=value …]",
        "       ng env start [--flag VALUE …] [+key=value …]",
        "",
        "Start the servers of a config and keep them up.",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "--split train|validation|benchmark|example Which datasets of the agents are collected. "
        "[+split: train|validation|benchmark|example, required]",
        "--concurrency INT, --num-samples-in-parallel INT How many rollouts may be under way at once; auto finds out "
        "how many bring the most. [+num_samples_in_parallel: int|auto, default 1024]",
        "--resume (=force), --resume-from-cache (=force) Go on with an earlier run of the same output; force: even "
        "where its rows or its model were others. [+resume_from_cache: bool|force, default false]",
        "--temperature FLOAT how freely the model samples [+responses_create_params.temperature: float, default as "
        "each row says]",
    ],
)
def test_a_parameter_is_shown_with_its_flags_meaning_override_type_and_default(shared_workplace, line):
    text = shared_workplace.run("ng", "eval", "run", "--help").out
    assert line in re.sub(r"\s+", " ", text)
