"""Tests of command names, flags and overrides, and of the errors for misspelled ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import yaml

import nemo_gym
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.version import __version__

pytestmark = pytest.mark.slow

PROGRAMS = ("ng", "gym", "nemo_gym")


def test_package_runs_as_a_module():
    words = [sys.executable, "-m", "nemo_gym", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"nemo-gym {__version__}\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_name_lists_all_commands(shared_workplace, program):
    finished = shared_workplace.run(program, "--help")
    assert (finished.code, finished.err) == (0, "")
    for command in COMMANDS:
        line = next(line for line in finished.out.splitlines() if line.endswith(f" {command.summary}"))
        assert line.split() == [
            *("ng submit" if command.is_alias else command.usual).split(),
            *command.summary.split(),
        ]


def test_without_command_help_is_shown_with_code_1(shared_workplace):
    bare = shared_workplace.run("ng")
    assert bare.code == 1
    assert bare.out == shared_workplace.run("ng_help").out


@pytest.mark.parametrize(
    "words",
    [
        ("ng_validate",),
        ("ng", "env", "validate"),
        pytest.param(("gym", "env", "validate"), marks=pytest.mark.slow),
        pytest.param(("nemo_gym", "env", "validate"), marks=pytest.mark.slow),
    ],
)
def test_all_names_of_a_command_are_equivalent(shared_workplace, words):
    finished = shared_workplace.run(*words, shared_workplace.environment())
    assert finished == (0, "✓ 1 server: plain\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("env", "strat"), "'ng env strat' is not a command. Did you mean 'start'? Available: add, check, "),
        (("enb", "start"), "'ng enb' is not a command. Did you mean 'env'? Available: "),
        (("eval", "xyz"), "'ng eval xyz' is not a command. Available: "),
        (("env", "start", "--ready-timeout", "3"), "unrecognized arguments: --ready-timeout"),
        (
            ("eval", "run", "--num-repaets", "4", "+output_jsonl_fpath=a b.jsonl"),
            "unrecognized arguments: --num-repaets. Did you mean '--num-repeats'? --help",
        ),
        (
            ("eval", "run", "--model-typ", "sample_model", "--limt=3", "+split=example"),
            "unrecognized arguments: --model-typ, --limt. Did you mean '--model-type'? --help",
        ),
        (("env", "status", "--jsn"), "unrecognized arguments: --jsn. Did you mean '--json'? "),
        (
            ("eval", "run", "--collector", "near", "--sharded"),
            "unrecognized arguments: --collector, --sharded. Rollouts are no longer collected on the agents' machines",
        ),
        (("version", "--jsn"), "ng version: unknown argument '--jsn'. Did you mean '--json'?"),
        (("env", "start", "--config"), "argument --config: expected one argument."),
        (
            ("eval", "run", "--temperature", "warm"),
            "argument --temperature: expected a number, got 'warm'. --help",
        ),
    ],
)
def test_misspelled_command_exits_with_2(shared_workplace, words, message):
    finished = shared_workplace.run("ng", *words)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"Error: {message}")
    assert finished.err.count("\n") == 1


def test_noun_alone_lists_its_verbs(shared_workplace):
    finished = shared_workplace.run("ng", "eval")
    assert finished.code == 2
    assert "ng eval reverify" in finished.out
    assert "ng env check" not in finished.out


@pytest.mark.parametrize(
    "words",
    [("ng", "--version"), ("gym", "--version"), ("ng", "version"), ("ng_version",), ("ng_version", "--version")],
)
def test_version_is_printed(shared_workplace, words):
    assert shared_workplace.run(*words) == (0, f"nemo-gym {__version__}\n", "")


@pytest.mark.parametrize("words", [("ng", "--version", "--json"), ("ng_version", "+json=true")])
def test_version_is_printed_as_json(shared_workplace, words):
    assert orjson.loads(shared_workplace.run(*words).out) == {"nemo-gym": __version__}


def test_version_needs_no_heavy_imports():
    program = (
        "import sys; from nemo_gym.cli.main import main; main(['--version'], 'ng'); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "nemo_gym" in loaded
    assert loaded & {"pydantic", "fastapi", "starlette", "uvicorn", "aiohttp", "omegaconf", "yaml", "rich"} == set()


def test_flags_and_overrides_may_be_mixed(shared_workplace):
    config = shared_workplace.environment("plain", settings="colour: red").removeprefix("+config_paths=[").rstrip("]")
    finished = shared_workplace.run(
        "ng_dump_config", "+one=1", "--config", config, "++plain.resources_servers.plain.colour=blue", "--model", "m"
    )
    assert finished.code == 0
    assert "one: 1\n" in finished.out
    assert "colour: blue\n" in finished.out
    assert "policy_model_name: m\n" in finished.out


@pytest.mark.parametrize("name", ["plain", "plain/plain"])
def test_environment_is_selected_by_name(shared_workplace, name):
    shared_workplace.environment()
    dumped = yaml.safe_load(shared_workplace.run("ng_dump_config", "--resources-server", name).out)
    assert dumped["plain"]["resources_servers"]["plain"]["entrypoint"] == "app.py"


def test_unknown_environment_is_reported_with_suggestion(shared_workplace):
    shared_workplace.environment()
    finished = shared_workplace.run("ng_validate", "--resources-server", "plein")
    searched = f"{shared_workplace.folder}, {Path(nemo_gym.__file__).parents[1]}"
    assert (finished.code, finished.err) == (
        1,
        "Error: --resources-server plein: resources_servers/plein/configs/plein.yaml not found in "
        f"{searched}. Did you mean 'plain'? Otherwise name the folder that contains resources_servers/ with "
        "--search-dir.\n",
    )


@pytest.mark.parametrize(
    ("program", "word", "meant"),
    [
        ("ng_run", "+dry_runn=true", "dry_run"),
        ("ng_dump_config", "+port_range_lo=20000", "port_range_low"),
        ("ng_dump_config", "++head_servr.port=0", "head_server"),
        ("ng_run", "+policy_modl_name=m", "policy_model_name"),
        ("ng_dump_config", "+wandb_projet=p", "wandb_project"),
        ("ng_e2e_collect_rollouts", "+num_repeat=3", "num_repeats"),
        ("ng_e2e_collect_rollouts", "+concurrency=3", "num_samples_in_parallel"),
        ("ng_reward_profile", "+rollout_jsonl_fpath=x.jsonl", "rollouts_jsonl_fpath"),
    ],
)
def test_misspelled_key_is_rejected_with_suggestion(shared_workplace, program, word, meant):
    config = [] if program == "ng_reward_profile" else [shared_workplace.environment()]
    finished = shared_workplace.run(program, *config, word)
    assert (finished.code, finished.out, finished.err.count("\n")) == (2, "", 1)
    key = word.partition("=")[0]
    if program == "ng_reward_profile":
        assert f"{meant} is missing (is '{key.lstrip('+')}' a misspelling of it?)" in finished.err
    else:
        assert finished.err.startswith(f"Error: {key}: nothing reads this key. Did you mean '{meant}'? --help")


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (("--head_server.port", "11005"), "head_server.port", 11005),
        (("--head-server.port=11005",), "head_server.port", 11005),
        (("--default-host", "0.0.0.0"), "default_host", "0.0.0.0"),
        (("--plain.resources_servers.plain.size", "-1"), "plain.resources_servers.plain.size", -1),
        (
            ("--plain.resources_servers.plain.colours", "[red, blue]"),
            "plain.resources_servers.plain.colours",
            ["red", "blue"],
        ),
        (("--tint", "blue"), "tint", "blue"),
    ],
)
def test_key_of_the_config_is_a_flag(shared_workplace, words, key, value):
    config = shared_workplace.environment(settings="colour: ${tint}")
    finished = shared_workplace.run("ng", "env", "resolve", config, "--tint=red", *words)
    assert (finished.code, finished.err) == (0, "")
    found = yaml.safe_load(finished.out)
    for part in key.split("."):
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--head_servr.port", "1"), "--head_servr.port: nothing reads this key. Did you mean 'head_server'?"),
        (("--head_server.port",), "argument --head_server.port: expected one argument."),
        (("--default-hots", "0.0.0.0"), "unrecognized arguments: --default-hots."),
    ],
)
def test_unknown_key_flag_is_rejected(shared_workplace, words, message):
    finished = shared_workplace.run("ng", "env", "resolve", shared_workplace.environment(), *words)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"Error: {message}")


def test_unknown_key_of_command_without_config_is_rejected(shared_workplace):
    finished = shared_workplace.run("ng_reward_profile", "+colour=red")
    assert (finished.code, finished.err) == (2, "Error: +colour: nothing reads this key. --help lists all settings.\n")


def test_keys_that_the_config_knows_are_accepted(shared_workplace):
    """A key may resemble a setting if the config defines it or refers to it, or if it is a new server."""
    config = shared_workplace.environment(settings="colour: ${num_repeat}")
    shared_workplace.write("more.yaml", "limits: 3\n")
    words = (
        "+num_repeat=3", "+limits=4", "++plain.resources_servers.plain.size=1", "+config_paths=[more.yaml]",
        "++plain2.resources_servers.plain.entrypoint=app.py", "+wandb_project=p", "+error_on_almost_servers=false",
        "+colour=red",
    )  # fmt: skip
    finished = shared_workplace.run("ng_dump_config", config, *words)
    assert (finished.code, finished.err) == (0, "")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("+num_repeats=0", "num_repeats: it must be at least 1, but is 0."),
        (
            "+num_repeats={plain: 0}",
            "num_repeats.plain: it must be at least 1, but is 0.",
        ),
        ("+limit=few", "limit: it must be a valid integer, but is 'few'."),
        (
            "++responses_create_params.temprature=1",
            "responses_create_params: 'temprature' is not a field of a request. Did you mean 'temperature'?",
        ),
    ],
)
def test_invalid_setting_is_explained(shared_workplace, word, message):
    words = (shared_workplace.environment(), "+split=example", "+output_jsonl_fpath=out.jsonl", word)
    assert shared_workplace.run("ng_e2e_collect_rollouts", *words) == (
        2,
        "",
        f"Error: {message} --help lists all settings.\n",
    )


@pytest.mark.parametrize(
    "words", [("-v", "env", "resolve"), ("env", "--verbose", "resolve"), ("env", "resolve", "-v")]
)
def test_verbose_is_accepted_in_any_position(shared_workplace, words):
    finished = shared_workplace.run("ng", *words, shared_workplace.environment())
    assert (finished.code, finished.err) == (0, "")
    assert "plain:\n" in finished.out
    assert "verbose: true\n" in finished.out


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("resources_servers/plein", "Did you mean 'resources_servers/plain'?"),
        ("plain", "Did you mean 'resources_servers/plain'?"),
        ("resources_servers/zzz", "Folders in resources_servers: "),
    ],
)
def test_unknown_folder_is_reported_with_suggestion(shared_workplace, entrypoint, message):
    shared_workplace.environment()
    finished = shared_workplace.run("ng_test", f"+entrypoint={entrypoint}")
    assert finished.code == 1
    assert finished.err.startswith(
        f"Error: entrypoint={entrypoint}: no folder with an app.py or a requirements.txt in "
    )
    assert message in finished.err


@pytest.mark.parametrize("verb", ["check", "test"])
def test_benchmark_is_suggested_with_its_flag(shared_workplace, verb):
    finished = shared_workplace.run("ng", "env", verb, "--resources-server", "gsm8k")
    assert finished.code == 1
    assert finished.err.endswith(" Did you mean '--benchmark gsm8k'?\n")


def test_environment_is_created_and_checked_by_name(workplace):
    made = workplace.run("ng", "env", "init", "--resources-server", "mine")
    assert (made.code, (workplace.folder / "resources_servers/mine/app.py").is_file()) == (0, True)
    checked = workplace.run("ng", "env", "check", "--resources-server", "mine")
    assert checked.out.splitlines()[-1].startswith("resources_servers/mine: ")


def test_environment_in_search_dir_is_tested_by_name(workplace):
    workplace.write("own/resources_servers/mine/app.py", "")
    workplace.write("own/resources_servers/mine/tests/test_it.py", "def test_it():\n    assert True\n")
    tested = workplace.run("ng", "env", "test", "--resources-server", "mine", "--search-dir", "own")
    assert (tested.code, "1 passed" in tested.out) == (0, True)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("evns", "--search-dir evns: there is no such folder. Did you mean 'envs'?"),
        ("envs/own", "--search-dir envs/own: there is no such folder."),
        (
            "envs/resources_servers",
            "--search-dir envs/resources_servers: this folder only has servers of one type. Name the folder above it, "
            "'envs'.",
        ),
        ("envs/x.txt", "--search-dir envs/x.txt: this is a file, not a folder. Name a folder."),
    ],
)
@pytest.mark.parametrize("words", [("ng_test", "+entrypoint=resources_servers/mine"), ("ng", "list", "agents")])
def test_invalid_search_dir_is_reported(shared_workplace, words, given, problem):
    shared_workplace.write("envs/resources_servers/mine/app.py", "")
    shared_workplace.write("envs/x.txt", "")
    finished = shared_workplace.run(*words, "--search-dir", given)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err == f"Error: {problem}\n"


def test_unencodable_characters_are_replaced(shared_workplace):
    finished = shared_workplace.run("ng_validate", shared_workplace.environment(), PYTHONIOENCODING="ascii")
    assert finished == (0, "+ 1 server: plain\n", "")


def test_table_in_a_terminal_without_unicode_is_ascii(shared_workplace):
    given = {"agent_ref": {"name": "a"}, "response": {}, "_ng_rollout_index": 0}
    lines = (f"{json.dumps({**given, '_ng_task_index': task, 'reward': task % 2})}\n" for task in range(5))
    shared_workplace.write("shards/x.jsonl", "".join(lines))
    finished = shared_workplace.run(
        "ng", "eval", "aggregate", "--input-glob", "shards/x.jsonl", "--output", "all.jsonl", PYTHONIOENCODING="ascii"
    )
    assert finished.code == 0, finished.err
    assert "?" not in finished.out
    assert "11.8-76.9%" in finished.out


@pytest.mark.parametrize("name", [b"caf\xe9", b"line\nbreak\ttab", b'"quo\\te\\"'])
def test_unusual_file_name_reaches_the_command(workplace, name):
    workplace.write("prompt.yaml", "user: '{q}'\n")
    given, made = (os.fsdecode(folder + name) for folder in (b"in_", b"out_"))
    (workplace.folder / given).write_text('{"q": "a"}\n')
    # Start `gym` instead of `ng`, which gets its arguments as JSON in these tests.
    finished = workplace.run(
        "gym", "dataset", "render", "--input", given, "--prompt-config", "prompt.yaml", "--output", made
    )
    assert (finished.code, finished.err) == (0, "")
    assert '"content":"a"' in (workplace.folder / made).read_text()
    shown = workplace.run("gym", "eval", "show", os.fsdecode(b"no" + name))
    assert (shown.code, "does not exist" in shown.err) == (1, True)


def test_closed_output_pipe_is_not_an_error(shared_workplace):
    words = " ".join(["ng_help", "|", "head -c 1"])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words],
        env=shared_workplace.env | {"PATH": f"{sys.prefix}/bin:{shared_workplace.env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("n", "")


@pytest.mark.parametrize("name", ["4.10", "007", "gpt-4"])
def test_numeric_model_name_stays_text(shared_workplace, name):
    printed = shared_workplace.run("ng_dump_config", "--model", name).out
    assert yaml.safe_load(printed)["policy_model_name"] == name


@pytest.mark.parametrize(("urls", "meant"), [(["http://a/v1"], "http://a/v1"), (["http://a/v1", "http://b/v1"], None)])
def test_repeated_flag_of_a_possible_list_adds_to_it(shared_workplace, urls, meant):
    printed = shared_workplace.run("ng_dump_config", *(word for url in urls for word in ("--model-url", url))).out
    assert yaml.safe_load(printed)["policy_base_url"] == (meant or urls)


@pytest.mark.parametrize("name", ["mine", "resources_servers/mine", "resources_servers/mine/"])
def test_bare_word_selects_tested_environment(workplace, name):
    workplace.write("resources_servers/mine/app.py", "")
    workplace.write("resources_servers/mine/tests/test_it.py", "def test_it():\n    assert True\n")
    workplace.write("resources_servers/other/app.py", "")
    tested = workplace.run("ng", "env", "test", name)
    assert (tested.code, "1 passed" in tested.out, "other" in tested.out) == (0, True, False)


def test_value_of_flag_is_not_environment_name(workplace):
    workplace.write("own/resources_servers/mine/app.py", "")
    assert "resources_servers/mine" in workplace.run("ng", "env", "test", "--search-dir", "own").out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("mcqa",), "--resources-server mcqa"),
        (("sample_model",), "--model-type sample_model"),
        (("configs/demo.yaml",), "--config configs/demo.yaml"),
        (("nobody",), "--resources-server nobody"),
    ],
)
def test_config_without_flag_is_reported(shared_workplace, words, meant):
    assert shared_workplace.run("ng", "env", "start", *words) == (
        2,
        "",
        f"Error: '{words[0]}' is not a flag. Did you mean '{meant}'? --help lists all settings.\n",
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("aggregate", "a.jsonl"), "--input-glob a.jsonl"),
        (("aggregate", "a.jsonl", "b.jsonl"), "--input-glob a.jsonl,b.jsonl"),
        (("reverify", "results/a.jsonl"), "--rollouts results/a.jsonl"),
        (("run", "rows.jsonl", "--no-serve"), "--input rows.jsonl"),
        (("run", "rows.jsonl"), "--input rows.jsonl"),
    ],
)
def test_file_without_flag_is_reported(shared_workplace, words, meant):
    assert shared_workplace.run("ng", "eval", *words) == (
        2,
        "",
        f"Error: '{words[1]}' is not a flag. Did you mean '{meant}'? --help lists all settings.\n",
    )


@pytest.mark.parametrize(
    "words", [("-v", "env", "resolve"), ("env", "resolve", "--verbose"), ("env", "resolve", "+verbose=true")]
)
def test_verbose_command_logs_its_steps(workplace, words):
    workplace.write("base.yaml", "a: 1\n")
    workplace.write("b.yaml", "config_paths: [base.yaml]\n")
    config = "+config_paths=[base.yaml,b.yaml]"
    message = "b.yaml:1: base.yaml is listed twice; it is loaded once"
    assert message in workplace.run("ng", *words, config).err
    assert workplace.run("ng", "env", "resolve", config).err == ""


@pytest.mark.parametrize(
    ("flavor", "hint"), [("nightly", "Did you mean 'night'?"), ("zzz", "The configs of plain are: night, plain.")]
)
def test_unknown_flavor_is_reported_with_available_ones(workplace, flavor, hint):
    workplace.environment()
    workplace.write("resources_servers/plain/configs/night.yaml", "a: 1\n")
    finished = workplace.run("ng", "env", "validate", "--resources-server", f"plain/{flavor}")
    assert (finished.code, finished.out) == (1, "")
    place = f"resources_servers/plain/configs/{flavor}.yaml"
    assert finished.err.startswith(
        f"Error: --resources-server plain/{flavor}: {place} not found in {workplace.folder}"
    )
    assert finished.err.endswith(f". {hint}\n")


def test_model_type_names_a_nested_config(workplace):
    model = "policy_model: {responses_api_models: {sample_model: {entrypoint: app.py, seed: 7}}}\n"
    workplace.write("responses_api_models/sample_model/configs/Qwen/Qwen3-8B.yaml", model)
    nested = workplace.run("ng", "env", "resolve", "--model-type", "sample_model/Qwen/Qwen3-8B")
    assert (nested.code, "seed: 7" in nested.out) == (0, True), nested.err
    misspelt = workplace.run("ng", "env", "resolve", "--model-type", "sample_model/Qwen/Qwen3-8b")
    assert misspelt.err.endswith("Did you mean 'Qwen/Qwen3-8B'?\n")


@pytest.mark.parametrize("name", ["sums", "sums/nightly"])
def test_benchmark_without_that_config_lists_the_others(workplace, name):
    workplace.write("benchmarks/sums/hard.yaml", "a: 1\n")
    finished = workplace.run("ng", "env", "validate", "--benchmark", name)
    assert finished.code == 1
    assert " not found in " in finished.err
    assert finished.err.endswith(". The configs of sums are: hard.\n")


def test_problem_with_several_settings_names_none(shared_workplace):
    words = ("ng", "dataset", "download", "--repo-id", "x/y", "--split", "train")
    assert shared_workplace.run(*words) == (
        2, "", "Error: give exactly one of output_fpath and output_dirpath. --help lists all settings.\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "run", "--split", "example"),
        ("eval", "run", "--no-serve", "-i", "x.jsonl"),
        ("eval", "reverify", "--inputs", "a.jsonl", "--rollouts", "b.jsonl"),
    ],
)
def test_resume_and_overwrite_exclude_each_other(shared_workplace, words):
    config = [] if "--no-serve" in words else [shared_workplace.environment()]
    assert shared_workplace.run("ng", *words, *config, "-o", "out.jsonl", "--resume", "--overwrite") == (
        2,
        "",
        "Error: --resume (resume_from_cache) continues an earlier run, but --overwrite (overwrite) replaces it. Use "
        "only one. --help lists all settings.\n",
    )
