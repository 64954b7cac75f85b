"""Which command was meant, in all of its spellings, and what a misspelt one is told."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest
import yaml

from nemo_gym.cli.main import COMMANDS
from nemo_gym.version import __version__

PROGRAMS = ("ng", "gym", "nemo_gym")


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_name_of_the_program_lists_all_commands(shared_workplace, program):
    finished = shared_workplace.run(program, "--help")
    assert (finished.code, finished.err) == (0, "")
    for command in COMMANDS:
        line = next(line for line in finished.out.splitlines() if line.endswith(f" {command.summary}"))
        assert line.split() == [*command.spelled.split(), *command.script.split(), *command.summary.split()]


def test_without_a_command_the_list_is_shown_and_the_exit_code_is_1(shared_workplace):
    bare = shared_workplace.run("ng")
    assert bare.code == 1
    assert bare.out == shared_workplace.run("ng_help").out


@pytest.mark.parametrize(
    "words",
    [("ng_validate",), ("ng", "env", "validate"), ("gym", "env", "validate"), ("nemo_gym", "env", "validate")],
)
def test_a_command_is_the_same_by_each_of_its_names(shared_workplace, words):
    finished = shared_workplace.run(*words, shared_workplace.environment())
    assert finished == (0, "✓ 1 server: plain\n", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("env", "strat"), "'ng env strat' is no command. Did you mean 'start'? There are: check, "),
        (("enb", "start"), "'ng enb' is no command. Did you mean 'env'? There are: "),
        (("eval", "xyz"), "'ng eval xyz' is no command. There are: "),
        (("env", "start", "--ready-timeout", "3"), "unrecognized arguments: --ready-timeout"),
        (("env", "status", "--jsn"), "unrecognized arguments: --jsn. Did you mean '--json'? "),
        (("version", "--jsn"), "ng version: '--jsn' is not understood. Did you mean '--json'?"),
        (("env", "start", "--config"), "argument --config: expected one argument."),
        (
            ("eval", "run", "--temperature", "warm"),
            "argument --temperature: it has to be a number, and is 'warm'. 'ng_e2e",
        ),
    ],
)
def test_what_is_misspelt_is_told_and_the_exit_code_is_2(shared_workplace, words, told):
    finished = shared_workplace.run("ng", *words)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"Error: {told}")
    assert finished.err.count("\n") == 1


def test_a_noun_alone_lists_its_verbs(shared_workplace):
    finished = shared_workplace.run("ng", "eval")
    assert finished.code == 2
    assert "ng eval run --no-serve" in finished.out
    assert "ng env start" not in finished.out


@pytest.mark.parametrize(
    "words",
    [("ng", "--version"), ("gym", "--version"), ("ng", "version"), ("ng_version",), ("ng_version", "--version")],
)
def test_the_version_is_printed(shared_workplace, words):
    assert shared_workplace.run(*words) == (0, f"nemo-gym {__version__}\n", "")


@pytest.mark.parametrize("words", [("ng", "--version", "--json"), ("ng_version", "+json=true")])
def test_the_version_is_printed_for_programs(shared_workplace, words):
    assert orjson.loads(shared_workplace.run(*words).out) == {"nemo-gym": __version__}


def test_the_version_is_told_without_loading_anything_heavy():
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
def test_an_environment_may_be_named_instead_of_its_file(shared_workplace, name):
    shared_workplace.environment()
    dumped = yaml.safe_load(shared_workplace.run("ng_dump_config", "--resources-server", name).out)
    assert dumped["plain"]["resources_servers"]["plain"]["entrypoint"] == "app.py"


def test_the_name_of_an_unknown_environment_is_told_with_what_may_be_meant(shared_workplace):
    shared_workplace.environment()
    finished = shared_workplace.run("ng_validate", "--resources-server", "plein")
    assert (finished.code, finished.err) == (
        1,
        "Error: --resources-server plein: no resources_servers/plein/configs/plein.yaml. Did you mean 'plain'?\n",
    )


def test_an_override_that_is_like_a_setting_is_noted(shared_workplace):
    finished = shared_workplace.run("ng_run", shared_workplace.environment(), "+dry_runn=true", "+dry_run=true")
    assert finished.code == 0
    assert finished.err == (
        "note: +dry_runn=true sets a value of the configuration; ng_run has no setting of this name. Did you mean "
        "'dry_run'?\n"
    )


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("+port_range_lo=20000", "port_range_low"),
        ("+head_servr.port=0", "head_server"),
        ("+policy_modl_name=m", "policy_model_name"),
    ],
)
def test_an_override_that_is_like_a_key_of_every_run_is_noted(shared_workplace, word, meant):
    finished = shared_workplace.run("ng_dump_config", shared_workplace.environment(), word)
    assert finished.code == 0
    assert finished.err.startswith(f"note: {word} sets a value of the configuration; ")
    assert finished.err.endswith(f"Did you mean '{meant}'?\n")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("+num_repeats=0", "num_repeats: it has to be greater than 0, and is 0; or it has to be a mapping, and is 0."),
        (
            "+num_repeats={plain: 0}",
            "num_repeats: it has to be a valid integer, and is a mapping; num_repeats.plain: it has to be greater "
            "than 0, and is 0.",
        ),
        ("+limit=few", "limit: it has to be a valid integer, and is 'few'."),
    ],
)
def test_a_setting_that_is_wrong_is_told_in_plain_words(shared_workplace, word, told):
    words = (shared_workplace.environment(), "+split=example", "+output_jsonl_fpath=out.jsonl", word)
    assert shared_workplace.run("ng_e2e_collect_rollouts", *words) == (
        2,
        "",
        f"Error: {told} --help lists all settings.\n",
    )


@pytest.mark.parametrize(
    "words", [("-v", "env", "resolve"), ("env", "--verbose", "resolve"), ("env", "resolve", "-v")]
)
def test_verbose_may_stand_anywhere(shared_workplace, words):
    finished = shared_workplace.run("ng", *words, shared_workplace.environment())
    assert (finished.code, finished.err) == (0, "")
    assert "plain:\n" in finished.out
    assert "verbose: true\n" in finished.out


@pytest.mark.parametrize(
    ("entrypoint", "told"),
    [
        ("resources_servers/plein", "Did you mean 'resources_servers/plain'?"),
        ("plain", "Did you mean 'resources_servers/plain'?"),
        ("resources_servers/zzz", "In resources_servers there are: "),
    ],
)
def test_the_folder_of_an_unknown_environment_is_told_with_what_may_be_meant(shared_workplace, entrypoint, told):
    shared_workplace.environment()
    finished = shared_workplace.run("ng_test", f"+entrypoint={entrypoint}")
    assert finished.code == 1
    assert finished.err.startswith(
        f"Error: entrypoint={entrypoint}: no folder with an app.py or a requirements.txt in "
    )
    assert told in finished.err


def test_an_environment_is_written_and_checked_by_its_name(workplace):
    made = workplace.run("ng", "env", "init", "--resources-server", "mine")
    assert (made.code, (workplace.folder / "resources_servers/mine/app.py").is_file()) == (0, True)
    checked = workplace.run("ng", "env", "check", "--resources-server", "mine")
    assert checked.out.splitlines()[-1].startswith("resources_servers/mine: ")


def test_an_environment_in_a_folder_of_ones_own_is_tested_by_its_name(workplace):
    workplace.write("own/resources_servers/mine/app.py", "")
    workplace.write("own/resources_servers/mine/tests/test_it.py", "def test_it():\n    assert True\n")
    tested = workplace.run("ng", "env", "test", "--resources-server", "mine", "--search-dir", "own")
    assert (tested.code, "1 passed" in tested.out) == (0, True)


def test_a_sign_that_the_terminal_cannot_show_is_replaced(shared_workplace):
    finished = shared_workplace.run("ng_validate", shared_workplace.environment(), PYTHONIOENCODING="ascii")
    assert finished == (0, "? 1 server: plain\n", "")


def test_a_reader_that_goes_away_is_no_error(shared_workplace):
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
def test_a_models_name_that_looks_like_a_number_stays_as_it_is(shared_workplace, name):
    printed = shared_workplace.run("ng_dump_config", "--model", name).out
    assert yaml.safe_load(printed)["policy_model_name"] == name


@pytest.mark.parametrize("name", ["mine", "resources_servers/mine", "resources_servers/mine/"])
def test_a_bare_word_names_the_environment_that_is_tested(workplace, name):
    workplace.write("resources_servers/mine/app.py", "")
    workplace.write("resources_servers/mine/tests/test_it.py", "def test_it():\n    assert True\n")
    workplace.write("resources_servers/other/app.py", "")
    tested = workplace.run("ng", "env", "test", name)
    assert (tested.code, "1 passed" in tested.out, "other" in tested.out) == (0, True, False)


def test_what_stands_behind_a_flag_is_no_environments_name(workplace):
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
def test_a_config_that_is_named_without_its_flag_is_told(shared_workplace, words, meant):
    assert shared_workplace.run("ng", "env", "start", *words) == (
        2,
        "",
        f"Error: '{words[0]}' is neither a flag nor a setting (+key=value). Did you mean '{meant}'?"
        " 'ng_run --help' lists all settings.\n",
    )


@pytest.mark.parametrize(
    "words", [("-v", "env", "resolve"), ("env", "resolve", "--verbose"), ("env", "resolve", "+verbose=true")]
)
def test_a_verbose_command_also_tells_what_it_does_on_the_way(workplace, words):
    workplace.write("base.yaml", "a: 1\n")
    workplace.write("b.yaml", "config_paths: [base.yaml]\n")
    config = "+config_paths=[base.yaml,b.yaml]"
    told = "b.yaml:1: base.yaml is named twice; it is loaded once"
    assert told in workplace.run("ng", *words, config).err
    assert workplace.run("ng", "env", "resolve", config).err == ""


@pytest.mark.parametrize(
    ("flavor", "hint"), [("nightly", "Did you mean 'night'?"), ("zzz", "The configs of plain are: night, plain.")]
)
def test_a_servers_config_that_does_not_exist_is_told_with_those_that_do(workplace, flavor, hint):
    workplace.environment()
    workplace.write("resources_servers/plain/configs/night.yaml", "a: 1\n")
    assert workplace.run("ng", "env", "validate", "--resources-server", f"plain/{flavor}") == (
        1,
        "",
        f"Error: --resources-server plain/{flavor}: no resources_servers/plain/configs/{flavor}.yaml. {hint}\n",
    )


def test_what_is_wrong_with_several_settings_together_is_told_of_none_of_them(shared_workplace):
    words = ("ng", "dataset", "download", "--repo-id", "x/y", "--split", "train")
    assert shared_workplace.run(*words) == (
        2, "", "Error: exactly one of output_fpath and output_dirpath has to be given. --help lists all settings.\n",
    )  # fmt: skip
