"""Coding agents as people run them, as installed by `make agents`, with a model that follows a script."""

import itertools
import json
import shutil
from pathlib import Path

import httpx
import pytest
import yaml

from nemo_gym import AgentFailed
from nemo_gym.testing import make_server, run
from nemo_gym.training import sequences_of
from responses_api_agents.harness_agent.app import HarnessAgent
from responses_api_models.vllm_model.app import VLLMModel
from tests.agents.repair.app import TEST, RepairServer
from tests.rows import rows_of

REPOSITORY = Path(__file__).parents[2]
HERE = Path(__file__).parent
CONFIGS = REPOSITORY / "responses_api_agents/harness_agent/configs"
INSTALLED = REPOSITORY / ".agents"
LIMIT_S = 900.0
"""A program starts in seconds, but some need a hundred times as long on a busy machine."""
FILES = {"calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": TEST}
PROGRAMS = {"claude-code": "claude", "codex": "codex", "opencode": "opencode", "mini-swe-agent": "mini",
            "qwen-code": "qwen", "gemini-cli": "gemini", "pi": "pi", "aider": "aider",
            "openhands": "openhands"}  # fmt: skip
WITH_MCP = ("claude-code", "codex", "opencode", "qwen-code", "gemini-cli", "openhands")
WITHOUT_SHELL = ("aider",)
QWEN_SETTINGS = {
    "tools": {"toolSearch": {"enabled": False}}, "ui": {"enableFollowupSuggestions": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
}  # fmt: skip
QWEN = f"mkdir ~/.qwen; echo '{json.dumps(QWEN_SETTINGS)}' > ~/.qwen/settings.json; qwen --acp"
ACP = {
    "claude": ("acp", "claude-agent-acp", "acp_mode=default"),
    "gemini": ("gemini-cli", "gemini --acp --skip-trust", "acp_auth=gemini-api-key"),
    "qwen": ("qwen-code", QWEN, "acp_auth=openai"),
}
"""Agents that are called with the Agent Client Protocol: their folder, command, and another setting.

Claude is ended while it asks for a title, so that its calls cannot be counted."""
ENVIRONMENT = """
repair:
  resources_servers:
    repair:
      entrypoint: app.py
"""

pytestmark = [pytest.mark.needs_bubblewrap, pytest.mark.slow, pytest.mark.timeout(1200)]
numbers = itertools.count(1)


def param(name):
    is_there = (INSTALLED / name / "bin" / PROGRAMS[name]).exists()
    return _param(name, name, is_there)


def acp_param(name):
    folder, command, _ = ACP[name]
    return _param(f"acp-{name}", folder, (INSTALLED / folder / "bin" / command.split("; ")[-1].split()[0]).exists())


def _param(value, name, is_there):
    reason = f"{name} is not installed: run `make agents-{name}`"
    return pytest.param(value, marks=pytest.mark.skipif(not is_there, reason=reason))


@pytest.fixture(scope="module")
def policy(run_endpoint):
    with run_endpoint(HERE / "policy.py") as url:
        yield url


def words_for(name):
    """Return the options that choose an agent."""
    if name.startswith("acp-"):
        folder, command, setting = ACP[name.removeprefix("acp-")]
        return ["--agent-type", "harness_agent/acp", f"+acp_folder={INSTALLED / folder}",
                f"+acp_command={json.dumps(command)}", f"+{setting}"]  # fmt: skip
    if name == "openhands":
        home = (INSTALLED / name / "pyvenv.cfg").read_text().split("home = ")[1].splitlines()[0]
        return ["--agent-type", f"harness_agent/{name}", f"+openhands_python={Path(home).parent}"]
    return ["--agent-type", f"harness_agent/{name}"]


def row_of(task):
    """Return a row whose task has a number, by which the policy's calls for it are found, and that number."""
    mark = f"(task {next(numbers):04})"
    about = {"responses_create_params": {"input": f"{task} {mark}"}, "workspace_files": FILES}
    return {**about, "verifier_metadata": {"expected_city": "Porto"}}, mark


def calls_for(policy, mark):
    calls = httpx.get(f"{policy}/calls", verify=False).json()
    return [each for each in calls if mark in json.dumps(each["body"]["messages"])]


def collected(workplace, policy, name, rows, *words):
    """Run rows with the program, in servers of their own, and return the results in the order of the rows."""
    workplace.write(f"{name}_rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    output = workplace.folder / "results" / f"{name}_{next(numbers)}.jsonl"
    finished = workplace.run(
        "ng", "eval", "run", *words, *words_for(name),
        "--model-type", "vllm_model/vllm_model_for_training", "--input", f"{name}_rows.jsonl",
        "--output", str(output), "--concurrency", "2", "--max-attempts", "1",
        f"+policy_base_url={policy}/v1", "+policy_api_key=none", "+policy_model_name=policy", timeout_s=LIMIT_S,
    )  # fmt: skip
    assert finished.code == 0, finished.out + finished.err
    return sorted(rows_of(output), key=lambda row: row["_ng_task_index"])


@pytest.mark.parametrize("name", [*map(param, PROGRAMS), *map(acp_param, ("gemini", "qwen"))])
def test_program_repairs_a_file_and_its_tokens_are_captured(shared_workplace, policy, name):
    folder = shared_workplace.folder
    shutil.copytree(HERE / "repair", folder / "resources_servers/repair", dirs_exist_ok=True)
    config = shared_workplace.write("resources_servers/repair/configs/repair.yaml", ENVIRONMENT)
    block = "repair_harness_agent.responses_api_agents.harness_agent"
    given = [row_of("Repair calc.py, so that its test passes."), row_of("Repair calc.py, so that its test passes."),
             row_of("Change nothing.")]  # fmt: skip
    results = collected(
        shared_workplace, policy, name, [row for row, _ in given], "--config", str(config),
        f"+token_id_capture={{enabled: true, dir: {folder / name}}}", f"++{block}.token_id_capture=true",
    )  # fmt: skip
    assert [each["reward"] for each in results] == [1.0, 1.0, 0.0]
    for result, (_, mark) in zip(results, given, strict=True):
        calls = calls_for(policy, mark)
        turns = [turn for sequence in sequences_of(result) for turn in sequence.turns]
        assert result["program"]["model_calls"] == len(calls) == len(turns)
        assert sorted(turn.sampled_ids for turn in turns) == sorted(each["sampled"] for each in calls)
        assert sorted(turn.log_probs for turn in turns) == sorted(each["log_probs"] for each in calls)
        ends = [sequence.prompt_ids + sequence.completion_ids for sequence in sequences_of(result)]
        whole = [each["prompt"] + each["sampled"] for each in calls]
        assert all(end in whole for end in ends)
        seen = json.dumps([each for call in calls for each in call["body"]["messages"] if each["role"] != "assistant"])
        assert not any(other in seen for other in ["left-behind", *(other for _, other in given if other != mark)])
        assert any(path.startswith(".transcript.") for path in result["workspace"]["files"])
        is_changed = result["workspace"]["files"]["calc.py"] != FILES["calc.py"]
        assert is_changed == result["reward"]
    if name not in WITHOUT_SHELL:
        assert all("the test passed" in json.dumps(each["response"]["output"]) for each in results[:2])


@pytest.mark.parametrize("name", [*map(param, WITH_MCP), *map(acp_param, ACP)])
def test_program_calls_the_environments_tools(shared_workplace, policy, name):
    row, mark = row_of("How is the weather in Porto?")
    (result,) = collected(shared_workplace, policy, name, [row], "--environment", "example_mcp_weather",
                          "--agent", "example_mcp_weather_harness_agent")  # fmt: skip
    assert result["reward"] == 1.0, calls_for(policy, mark)[0]["tools"]
    # OpenHands adds an argument to each tool, so that results are not recognized.
    assert result["program"]["claimed_answers"] == (name == "openhands")


@pytest.mark.parametrize("name", [acp_param("gemini")])
def test_agent_of_acp_lacks_permission_to_edit(shared_workplace, policy, name):
    config = shared_workplace.folder / "resources_servers/repair/configs/repair.yaml"
    shutil.copytree(HERE / "repair", config.parents[1], dirs_exist_ok=True)
    shared_workplace.write(str(config.relative_to(shared_workplace.folder)), ENVIRONMENT)
    row, _ = row_of("Repair calc.py, so that its test passes.")
    words = ("--config", str(config), "+acp_allows=read,search")
    (result,) = collected(shared_workplace, policy, name, [row], *words)
    assert (result["reward"], result["workspace"]["files"]["calc.py"]) == (0.0, FILES["calc.py"])


HARBOR = """
[environment]
network_mode = "no-network"
workdir = "/workspace"
"""
GRADE = "#!/bin/sh\ncp /tests/original.py . && python3 original.py && echo 1 > /logs/verifier/reward.txt\n"


@pytest.mark.parametrize("name", [param(each) for each in PROGRAMS])
def test_program_plays_a_task_folder_of_harbor(shared_workplace, policy, name):
    mark = row_of("")[1]
    texts = {"task.toml": HARBOR, "instruction.md": f"Repair calc.py. {mark}", "tests/test.sh": GRADE}
    texts |= {"tests/original.py": TEST, **{f"environment/{path}": text for path, text in FILES.items()}}
    for path, text in texts.items():
        shared_workplace.write(f"harbor_tasks/{name}/{path}", text)
    output = shared_workplace.folder / "results" / f"harbor_{name}.jsonl"
    finished = shared_workplace.run(
        "ng", "eval", "run", "--from", f"harbor:harbor_tasks/{name}", *words_for(name),
        "--model-type", "vllm_model", "--output", str(output), "--max-attempts", "1",
        f"+policy_base_url={policy}/v1", "+policy_api_key=none", "+policy_model_name=policy", timeout_s=LIMIT_S,
    )  # fmt: skip
    assert finished.code == 0, finished.out + finished.err
    (result,) = rows_of(output)
    assert (result["reward"], result["withheld"]) == (1.0, {}), calls_for(policy, mark)
    assert result["workspace"]["archive"]


def agent_of(name, policy, **settings):
    """Return an agent with the settings of the program's config."""
    (block,) = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text("utf-8")).values()
    given = block["responses_api_agents"]["harness_agent"]
    given |= {"resources_server": {"type": "resources_servers", "name": "repair"}, "files": {}}
    given["program_folder"] = str(INSTALLED / name)
    given["env"] |= settings.pop("env", {})
    about = {"base_url": f"{policy}/v1", "api_key": "none", "model": "policy"}
    servers = [make_server(RepairServer, name="repair"), make_server(VLLMModel, name="policy_model", **about)]
    return make_server(HarnessAgent, servers=servers, **{**given, **settings})


@pytest.mark.parametrize("name", [param(each) for each in PROGRAMS if each not in (*WITHOUT_SHELL, "openhands")])
async def test_program_that_hangs_has_no_reward(policy, name):
    row, _ = row_of("Wait for ten minutes.")
    with pytest.raises(AgentFailed, match="did not end within 30 s and was killed"):
        await run(agent_of(name, policy, timeout_s=30), **row)


@pytest.mark.parametrize("name", [param(each) for each in ("claude-code", "codex", "pi", "qwen-code", "gemini-cli")])
async def test_program_that_dies_has_no_reward(policy, name):
    row, _ = row_of("Kill your parent process.")
    with pytest.raises(AgentFailed, match="ended with exit code"):
        await run(agent_of(name, policy), **row)


@pytest.mark.parametrize(
    ("name", "env", "problem"),
    [
        pytest.param(name, env, problem, marks=param(name).marks)
        for name, env, problem in (
            ("claude-code", {"ANTHROPIC_API_KEY": ""}, "exit code 1: .*Not logged in"),
            ("codex", {"OPENAI_API_KEY": ""}, "exit code 1: .*OPENAI_API_KEY"),
        )
    ],
)
async def test_program_without_login_has_no_reward(policy, name, env, problem):
    row, _ = row_of("Repair calc.py.")
    with pytest.raises(AgentFailed, match=problem):
        await run(agent_of(name, policy, env=env), **row)
