"""The contract of all folders under resources_servers; new folders are covered automatically."""

import json
import math
import random
import sys
from pathlib import Path

import pytest

from nemo_gym.contract.answers import HUGE, ODD_ARGUMENTS
from nemo_gym.contract.attacking import attack_environment
from nemo_gym.contract.checks import Checkup, Finding, check_environment
from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.examples import example_rollouts
from nemo_gym.contract.play import play
from nemo_gym.contract.tasks import Task
from nemo_gym.data.examples import check_examples
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, reply, rollout, serving
from responses_api_models.sample_model.sampler import Sampler
from tests.each_case import each_case

REPOSITORY = Path(__file__).parent.parent
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
FOLDERS = sorted(
    path for path in (REPOSITORY / "resources_servers").iterdir() if path.is_dir() and path.name[0] not in "._"
)
# One config has no tasks, for trainers that only want the verifier.
CONFIGS = [
    path for folder in FOLDERS for path in sorted((folder / "configs").glob("*.yaml")) if path.stem != "resources_only"
]

PLAIN_REPLY = "I am sure that the answer is 42."


RUNS_PROGRAMS = ("code_gen", "harbor")
EACH_FOLDER = [
    pytest.param(folder, marks=[pytest.mark.needs_bubblewrap] if folder.name in RUNS_PROGRAMS else [])
    for folder in FOLDERS
]


@pytest.fixture(params=EACH_FOLDER, ids=lambda path: path.name)
def environment(request):
    """Each environment in turn."""
    with open_environment(request.param) as opened:
        yield opened


def arguments_for(tool, seed):
    """Return valid arguments of a tool, which depend on the seed."""
    return Sampler(tool.parameters).sample(random.Random(f"{tool.name} {seed}"))


async def test_lone_surrogates_in_a_row_are_graded(environment):
    row = {**environment.rows[0], "response": reply("HALF").model_dump(mode="json"), "more": ["HALF"]}
    body = json.dumps(row).replace("HALF", r"\ud83d")
    async with serving(environment.server()) as client:
        graded = await client.post("/verify", content=body)
    assert (graded.status_code, graded.json()["more"]) == (200, ["\ufffd"])
    assert math.isfinite(graded.json()["reward"])


THOUGHTS = ("<think>{}</think>", "<think>{}", "{}</think>", "<THINK>\n{}\n</THINK>\n", "[THINK]{}[/THINK]")
REJECTS_THINKING = {"calendar"}
"""Environments whose published rule rejects every answer with a `<think>`."""


async def test_thoughts_do_not_count_as_the_answer(environment):
    checkup, row = Checkup(environment, []), environment.rows[0]
    *before, answer = environment.oracle.solve(row)
    if not isinstance(answer, str) or not answer:
        return
    due, rivals = environment.oracle.full_reward(row), checkup.rivals(row, [*before, answer])
    async with checkup.server() as server:

        async def earned(text):
            return (await play(server, row, [*before, text], rivals)).reward

        nothing = await earned("")
        assert {thought: await earned(thought.format(answer)) for thought in THOUGHTS} == dict.fromkeys(
            THOUGHTS, nothing
        )
        if environment.folder.name not in REJECTS_THINKING:
            assert await earned(f"<think>Is it 7, or \\boxed{{Z}}?</think>\n{answer}") == pytest.approx(due)


NO_TOOLS = ["no_such_tool", "", "../verify"]


@pytest.mark.slow
@pytest.mark.parametrize("runs_programs", [False, pytest.param(True, marks=pytest.mark.needs_bubblewrap)])
async def test_no_attack_earns_a_reward(runs_programs):
    """Play all attacks at the last example of each environment. Benchmarks use the same servers."""
    fooled = {}
    for folder in (path for path in FOLDERS if (path.name == "code_gen") is runs_programs):
        with open_environment(folder) as environment:
            tasks = [Task("the last row", environment.rows[-1])]
            found = []
            await attack_environment(environment, tasks, found.append)
        findings = [each for each in found if isinstance(each, Finding)]
        assert findings
        fooled |= {(folder.name, each.promise): each.detail for each in findings if not each.is_kept}
    assert fooled == {}


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
async def test_every_promise_holds(path):
    with open_environment(path.parents[1], [f"+config_paths=[{path}]"]) as environment:
        findings = await check_environment(environment)
    assert [finding for finding in findings if not finding.is_kept] == []


FILES = ("README.md", "app.py", "oracle.py", "prepare.py", "data/example.jsonl")
MOST_BYTES = 200_000
"""Maximum size of an example file, to keep it readable."""


@each_case("folder", FOLDERS)
def test_folder_is_complete(folder):
    assert [name for name in FILES if not (folder / name).is_file()] == []
    assert list((folder / "configs").glob("*.yaml"))
    assert list((folder / "tests").glob("test_*.py"))
    check_examples(folder)


@pytest.mark.parametrize("folder", EACH_FOLDER, ids=lambda path: path.name)
async def test_example_rollouts_match_the_oracle(folder):
    path = folder / "data" / "example_rollouts.jsonl"
    assert path.stat().st_size < MOST_BYTES
    assert not any(str(place).encode() in path.read_bytes() for place in (REPOSITORY, Path(sys.prefix), Path("/tmp")))
    with open_environment(folder) as environment:
        played = await example_rollouts(environment)
        assert environment.oracle is not None
        full = [environment.oracle.full_reward(row) for row in environment.rows]
    stored = list(read_rows(path))
    assert [row["reward"] for row in stored] == pytest.approx(full)
    # Other fields may depend on the machine that graded the rollout.
    expected = [(row["response"]["output"], row["reward"], row.keys()) for row in stored]
    advice = f"ng env check --resources-server {folder.name} --write-examples"
    assert expected == [(row["response"]["output"], row["reward"], row.keys()) for row in played], advice


def test_readme_covers_task_grading_license_and_command(environment):
    text = (environment.folder / "README.md").read_text("utf-8")
    assert text.startswith("# ")
    assert "reward" in text or "earns" in text
    assert "licence" in text.lower() or "license" in text.lower()
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert any(environment.folder.name in command for command in commands)


def test_no_two_tools_have_the_same_name(environment):
    names = [tool.name for tool in environment.server().tools()]
    assert len(set(names)) == len(names)


async def test_graded_row_keeps_all_fields(environment):
    row = {**environment.rows[0], "a_field_of_no_one": {"kept": [1, None]}}
    async with rollout(environment.server(), **row) as attempt:
        graded = await attempt.verify(reply(PLAIN_REPLY), compared_with=environment.empty_rivals)
        graded = graded.model_dump(mode="json")
    assert {name: graded.get(name) for name in row if name != "responses_create_params"} == {
        name: value for name, value in row.items() if name != "responses_create_params"
    }


async def played(server, row, tools, seed):
    """Call each tool twice and return the outputs and the reward."""
    async with rollout(server, **row) as attempt:
        answers = [
            await attempt.call(tool.name, **arguments_for(tool, (seed, turn))) for turn in range(2) for tool in tools
        ]
        return answers, (await attempt.verify()).reward


async def test_second_rollout_behaves_as_on_a_fresh_server(environment):
    fresh, used = environment.server(), environment.server()
    tools = used.tools()
    if not tools:
        pytest.skip("it has no tools")
    first, second = environment.rows[0], environment.rows[1]
    undisturbed = await played(fresh, second, tools, "second")
    async with serving(used):
        async with rollout(used, **first) as under_way:
            for tool in tools:
                await under_way.call(tool.name, **arguments_for(tool, "first"))
            assert await played(used, second, tools, "second") == undisturbed
        await played(used, first, tools, "another")
        assert await played(used, second, tools, "second") == undisturbed


async def test_odd_tool_calls_can_be_graded(environment):
    server = environment.server()
    async with serving(server):
        for name in [*(tool.name for tool in server.tools()), *NO_TOOLS]:
            calls = [call(name).model_copy(update={"arguments": arguments}) for arguments in ODD_ARGUMENTS]
            # Every call is the last one once, because some verifiers check only the last call.
            for count in range(1, len(calls) + 1):
                async with rollout(server, **environment.rows[count % len(environment.rows)]) as attempt:
                    graded = await attempt.verify(reply(*calls[:count]), compared_with=environment.empty_rivals)
                assert math.isfinite(graded.reward), calls[count - 1].arguments


async def test_wrong_arguments_do_not_end_a_rollout(environment):
    server = environment.server()
    async with rollout(server, **environment.rows[0]) as attempt:
        for tool in server.tools():
            for arguments in ({}, {"no_such_argument": 1}, dict.fromkeys(tool.parameters["properties"])):
                assert isinstance(await attempt.call(tool.name, **arguments), str)
        assert math.isfinite((await attempt.verify(compared_with=environment.empty_rivals)).reward)


async def test_tools_handle_large_numbers_and_texts(environment):
    server = environment.server()
    async with rollout(server, **environment.rows[0]) as attempt:
        for tool in server.tools():
            for extreme in (2**63 - 1, -(2**63), "x" * HUGE, [2**63 - 1] * 3, [], ""):
                for _ in range(3):
                    arguments = dict.fromkeys(tool.parameters["properties"], extreme)
                    assert isinstance(await attempt.call(tool.name, **arguments), str)
        assert math.isfinite((await attempt.verify(compared_with=environment.empty_rivals)).reward)
