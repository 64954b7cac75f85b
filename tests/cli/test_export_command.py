"""Tests of `ng dataset export`: a real collection over two environments, exported in each format."""

from __future__ import annotations

import pytest

from nemo_gym.training.formats import FORMATS
from tests.rows import rows_of

pytestmark = pytest.mark.slow

ENVIRONMENTS = [
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "resources_servers/mcqa/configs/mcqa.yaml",
]
MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"


@pytest.fixture(scope="module")
def collected(shared_workplace):
    """A workplace with the rollouts of two environments: `x.jsonl`."""
    words = (f"+config_paths=[{','.join([*ENVIRONMENTS, MODEL])}]", "+split=example", "+num_repeats=8")
    finished = shared_workplace.run(
        "ng_e2e_collect_rollouts", *words, "+output_jsonl_fpath=x.jsonl", "+head_server.port=0"
    )
    assert finished.code == 0, finished.err
    return shared_workplace


def exported(workplace, name, *words):
    out = f"data/{name}.jsonl"
    files = ("+input_jsonl_fpath=x.jsonl", f"+output_jsonl_fpath={out}")
    return workplace.run("ng", "dataset", "export", *files, f"+format={name}", *words), workplace.folder / out


@pytest.mark.parametrize("name", FORMATS)
def test_real_collections_are_exported_in_each_format(collected, name):
    rated = ["+min_reward=1.0"] if name in ("unpaired", "kto") else []
    finished, path = exported(collected, name, *rated)
    assert (finished.code, finished.err) == (0, "")
    table, total, written = finished.out.rstrip("\n").rsplit("\n", 2)
    counts = [int(line.split()[1]) for line in table.splitlines()[1:]]
    rollouts = len(rows_of(collected.folder / "x.jsonl"))
    assert sum(counts) == rollouts
    assert total == f"{rollouts} rollouts read = {counts[0]} kept + {sum(counts[1:])} dropped"
    examples = rows_of(path)
    assert written.startswith(f"{len(examples)} example")
    assert written.endswith(f": data/{name}.jsonl")
    if FORMATS[name].of_pair is None:
        assert len(examples) == counts[0]
        # Only one of the environments has a tool.
        tools = [example["agent"].get("tool_definitions") if name == "atif" else example.get("tools")
                 for example in examples]  # fmt: skip
        assert {each is None for each in tools} == {True, False}


def test_split_and_conditions_are_settings_of_the_command(collected):
    words = (
        "--where",
        "'single_tool' in agent_ref.name and reward == 1",
        "--validation-share",
        "0.4",
        "-o",
        "s.jsonl",
    )
    finished, _ = exported(collected, "messages", *words)
    assert finished.code == 0, finished.err
    assert finished.out.endswith(" examples: s_validation.jsonl\n")
    sides = [rows_of(collected.folder / f"s{side}.jsonl") for side in ("", "_validation")]
    prompts = [
        {each["content"] for row in side for each in row["messages"] if each["role"] == "user"} for side in sides
    ]
    assert not prompts[0] & prompts[1]
    assert [len(side) for side in prompts] == [3, 2]


def test_faults_are_one_paragraph_with_exit_code(collected):
    for code, message, words in (
        (1, "x.jsonl: no example is left of 80 rollouts: 80 below min_reward. Collect", ("+min_reward=2",)),
        (1, "x.jsonl:1: where: the row has no field 'rewerd'", ("+where=rewerd > 1",)),
        (2, "where: 'len(x)' at column 1 is not allowed. A condition consists of", ("+where=len(x) > 1",)),
        (2, "pairs applies to formats of pairs only, not to messages; leave it out.", ("+pairs=all",)),
        (2, "+min_rewerd: nothing reads this key. Did you mean 'min_reward'?", ("+min_rewerd=1",)),
    ):
        finished, _ = exported(collected, "messages", "+output_jsonl_fpath=none.jsonl", *words)
        assert finished.code == code
        assert finished.err.startswith(f"Error: {message}")
        assert finished.err.count("\n") == 1
        assert not (collected.folder / "none.jsonl").exists()
