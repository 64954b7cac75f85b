"""Tests of `--agent-type`, of the restrictions of environments, and of `ng list agents --for`."""

from __future__ import annotations

import orjson
import pytest
import yaml

pytestmark = pytest.mark.slow

WEATHER = ("--resources-server", "example_single_tool_call")
SAMPLE = ("--model-type", "sample_model")
PATIENT_AGENT = """
from fastapi import Request
from nemo_gym import BaseRunRequest, Conversation, ConversingAgent, ConversingAgentConfig
from nemo_gym import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming


class PatientConfig(ConversingAgentConfig):
    greeting: str


class PatientAgent(ConversingAgent):
    config: PatientConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def converse(self, request: Request, body: BaseRunRequest, row: dict, session: dict) -> Conversation:
        conversation = await self.begin(row["responses_create_params"], session)
        conversation.hear(self.config.greeting)
        await self.answer(conversation)
        conversation.added["greeted_with"] = self.config.greeting
        return conversation
"""
PATIENT_CONFIG = """
config_paths: [resources_servers/mcqa/configs/mcqa.yaml]
mood: Good morning
mcqa_patient_agent:
  responses_api_agents:
    patient_agent:
      entrypoint: app.py
      greeting: ${mood}
      resources_server: {type: resources_servers, name: mcqa}
      model_server: {type: responses_api_models, name: policy_model}
"""
TEMPLATE = """
template:
  responses_api_agents:
    patient_agent:
      entrypoint: app.py
      greeting: Hello
      resources_server: {type: resources_servers, name: '???'}
      model_server: {type: responses_api_models, name: policy_model}
"""
FORWARDING_AGENT = """
from fastapi import FastAPI

from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgent


class ForwardingAgent(BaseResponsesAPIAgent):
    def setup_webserver(self) -> FastAPI:
        return FastAPI()
"""
FORWARDING_CONFIG = "forwarding: {responses_api_agents: {forwarding_agent: {entrypoint: app.py}}}"
OPEN = """
from typing import ClassVar

from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class OpenConfig(BaseResourcesServerConfig):
    allowed_agents: ClassVar[list[str]] = ["simple_agent"]


class OpenServer(SimpleResourcesServer):
    config: OpenConfig

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
CHOOSY = """
{name}:
  resources_servers:
    {name}: {{entrypoint: app.py{allowed}}}
{name}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets: [{{name: example, type: example, jsonl_fpath: rows.jsonl}}]
other:
  environment_servers:
    legacy_agent: {{entrypoint: app.py, agent_server: {{type: responses_api_agents, name: {name}_simple_agent}}}}
"""
ROWS = (
    {"responses_create_params": {"input": "Hello"}},
    {"responses_create_params": {"input": "Hi"}, "agent_ref": {"name": "choosy_simple_agent"}},
    {"responses_create_params": {"input": "Hey"}, "agent_ref": {"name": "other"}},
)


def write_environment(place, name, allowed="", source=None):
    place.environment(name, *([source] if source else []))
    config = CHOOSY.format(name=name, allowed=allowed)
    return str(place.write(f"resources_servers/{name}/configs/{name}.yaml", config))


@pytest.fixture(scope="module")
def place(shared_workplace):
    """Yield a workplace with an agent and with environments that allow others."""
    shared_workplace.write("responses_api_agents/patient_agent/app.py", PATIENT_AGENT)
    shared_workplace.write("responses_api_agents/patient_agent/configs/patient_agent.yaml", PATIENT_CONFIG)
    shared_workplace.write("responses_api_agents/forwarding_agent/app.py", FORWARDING_AGENT)
    shared_workplace.write("responses_api_agents/forwarding_agent/configs/forwarding_agent.yaml", FORWARDING_CONFIG)
    quick = PATIENT_CONFIG.replace("${mood}", "Quick!").replace("mcqa_patient_agent", "quick")
    shared_workplace.write("responses_api_agents/patient_agent/configs/quick.yaml", quick)
    two = PATIENT_CONFIG + PATIENT_CONFIG.partition("mood: Good morning")[2].replace("mcqa_patient", "second")
    shared_workplace.write("responses_api_agents/patient_agent/configs/two.yaml", two)
    shared_workplace.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in ROWS))
    write_environment(
        shared_workplace, "choosy", ", allowed_agents: [simple_agent], allowed_model_types: [openai_model]"
    )
    write_environment(shared_workplace, "open", source=OPEN)
    write_environment(shared_workplace, "modest", ", allowed_agents: simple_agent")
    shared_workplace.environment("agentless")
    return shared_workplace


def resolved(place, *words):
    finished = place.run("ng", "env", "resolve", *words)
    assert (finished.code, finished.err) == (0, "")
    return yaml.safe_load(finished.out)


def test_agent_takes_over_an_environment(place):
    own = resolved(place, *WEATHER)["example_single_tool_call_simple_agent"]["responses_api_agents"]["simple_agent"]
    found = resolved(place, *WEATHER, "--agent-type", "patient_agent")
    assert set(found) == {
        "config_paths", "example_single_tool_call", "example_single_tool_call_patient_agent",
        "example_single_tool_call_simple_agent", "mood",
    }  # fmt: skip
    assert set(found["example_single_tool_call_simple_agent"]) == {"environment_servers"}
    (block,) = found["example_single_tool_call_patient_agent"]["responses_api_agents"].values()
    assert (block["greeting"], block["entrypoint"]) == ("${mood}", "app.py")
    same = ("resources_server", "model_server", "datasets")
    assert [block[key] for key in same] == [own[key] for key in same]


def test_flavor_and_overrides_set_the_agent(place):
    name = "example_single_tool_call_patient_agent"
    words = (f"++{name}.responses_api_agents.patient_agent.max_steps=3", "--agent-type", "patient_agent/quick")
    block = resolved(place, *WEATHER, *words)[name]["responses_api_agents"]["patient_agent"]
    assert (block["greeting"], block["max_steps"]) == ("Quick!", 3)
    assert block["datasets"][0]["type"] == "example"


def test_flavor_replaces_settings_of_the_same_agent(place):
    config = place.write("greeted.yaml", PATIENT_CONFIG.replace("Good morning", "Hello"))
    words = ("--config", str(config), "--agent-type", "patient_agent/quick")
    (block,) = resolved(place, *words)["mcqa_patient_agent"]["responses_api_agents"].values()
    assert block["greeting"] == "Quick!"
    typed = "++mcqa_patient_agent.responses_api_agents.patient_agent.greeting=Typed"
    (block,) = resolved(place, *words, typed)["mcqa_patient_agent"]["responses_api_agents"].values()
    assert block["greeting"] == "Typed"


def test_own_agent_keeps_its_settings(place):
    weather = ("--resources-server", "example_mcp_weather")
    assert resolved(place, *weather, "--agent-type", "simple_agent") == resolved(place, *weather)
    harness = "responses_api_agents/harness_agent/configs/harness_agent.yaml"
    found = resolved(place, "--config", harness, "--agent-type", "harness_agent")
    agents = {name: each for name, each in found.items() if "responses_api_agents" in each}
    (block,) = agents["example_mcp_weather_harness_agent"]["responses_api_agents"].values()
    assert (len(agents), [each["type"] for each in block["datasets"]]) == (1, ["example", "train", "validation"])


def test_server_without_agent_gets_one(place):
    found = resolved(place, "--resources-server", "agentless", "--agent-type", "simple_agent")
    (block,) = found["agentless_simple_agent"]["responses_api_agents"].values()
    assert block["resources_server"]["name"] == "agentless"


def test_own_config_of_an_agent_replaces_the_agent(place):
    config = place.write("template.yaml", TEMPLATE)
    typed = "++template.responses_api_agents.patient_agent.greeting=Typed"
    found = resolved(place, *WEATHER, "--config", str(config), typed)
    assert set(found["example_single_tool_call_simple_agent"]) == {"environment_servers"}
    (block,) = found["template"]["responses_api_agents"].values()
    assert (block["greeting"], block["resources_server"]["name"]) == ("Typed", "example_single_tool_call")
    assert block["datasets"][0]["type"] == "example"
    two = resolved(place, *WEATHER, "--resources-server", "mcqa", "--config", str(config))
    agents = [name for name, each in two.items() if "responses_api_agents" in each]
    assert agents == ["example_single_tool_call_patient_agent", "mcqa_patient_agent"]
    own = ("--config", "responses_api_agents/simple_agent/configs/simple_agent.yaml")
    assert resolved(place, *WEATHER, *own).keys() == resolved(place, *WEATHER).keys()
    alone = place.run("ng", "env", "resolve", "--config", str(config))
    assert "template.responses_api_agents.patient_agent.resources_server.name" in alone.err


BROKEN = """
broken:
  resources_servers: {example_single_tool_call: {entrypoint: app.py}}
broken_agent:
  responses_api_agents:
    broken_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: broken}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: more, type: example, jsonl_fpath: rows.jsonl}]
"""


def test_named_agent_runs_alone(place):
    place.write("responses_api_agents/broken_agent/app.py", "raise ValueError('This agent cannot start.')\n")
    broken = str(place.write("broken.yaml", BROKEN))
    words = ("ng", "eval", "run", *WEATHER, "--config", broken, *SAMPLE)
    name, output = "example_single_tool_call_simple_agent", "results/alone.jsonl"
    finished = place.run(*words, "--split", "example", "--agent", name, "--output", output)
    assert finished.code == 0, finished.err
    assert "3 servers ready" in finished.err
    rows = [orjson.loads(line) for line in (place.folder / output).read_bytes().splitlines()]
    assert {row["agent_ref"]["name"] for row in rows} == {name}
    of_broken = {**ROWS[0], "agent_ref": {"name": "broken_agent"}}
    given = place.write("given.jsonl", orjson.dumps(of_broken).decode() + "\n")
    unlimited = place.run(*words, "--input", str(given), "--agent", name, "--output", "results/both.jsonl")
    assert (unlimited.code, "This agent cannot start." in unlimited.err) == (1, True)
    misspelt = place.run(*words, "--agent", "example_single_tool_call_simpel_agent", "--output", "results/no.jsonl")
    assert (misspelt.code, f"Did you mean '{name}'?" in misspelt.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--agent-type", "patient"), "Did you mean 'patient_agent'?"),
        (("--agent-type", "patient_agent/quik"), "Did you mean 'quick'?"),
        (("--agent-type", "patient_agent/two"), "two.yaml defines the agents mcqa_patient_agent, second_agent."),
        (("+agent_config=no.yaml",), "agent_config: the file 'no.yaml' does not exist."),
        (
            (
                "++example_single_tool_call_simple_agent.responses_api_agents.simple_agent.max_steps=3",
                "--agent-type",
                "patient_agent",
            ),
            "example_single_tool_call_simple_agent.max_steps would be ignored",
        ),
    ],
)
def test_unusable_choice_is_explained(place, words, problem):
    finished = place.run("ng", "env", "resolve", *WEATHER, *words)
    assert (finished.code, problem in finished.err) == (1, True), finished.err


def test_rows_run_with_the_other_agent(place):
    words = ("--resources-server", "choosy", "--agent-type", "patient_agent", "--allow-unsupported-pairing", *SAMPLE)
    finished = place.run("ng", "eval", "run", *words, "--split", "example", "--output", "results/paired.jsonl")
    assert finished.code == 0, finished.err
    rows = [orjson.loads(line) for line in (place.folder / "results/paired.jsonl").read_bytes().splitlines()]
    assert [row["greeted_with"] for row in rows] == ["Good morning"] * 3
    assert sorted(row["agent_ref"]["name"] for row in rows) == ["choosy_patient_agent"] * 2 + ["other"]
    problems = [
        "resources_servers/choosy/configs/choosy.yaml:4: choosy.allowed_agents allows only simple_agent, but "
        "choosy_patient_agent is patient_agent.",
        "resources_servers/choosy/configs/choosy.yaml:4: choosy.allowed_model_types allows only openai_model, but "
        "policy_model is sample_model.",
    ]
    record = orjson.loads((place.folder / "results/paired_run.json").read_bytes())
    assert record["unsupported_pairings"] == problems
    assert [f"note: unsupported pairing: {problem}" in finished.err for problem in problems] == [True, True]


@pytest.mark.parametrize(
    ("environment", "words", "problem"),
    [
        ("choosy", ("--agent-type", "patient_agent"), "choosy.allowed_agents allows only simple_agent, but "),
        ("choosy", SAMPLE, "choosy.allowed_model_types allows only openai_model, but policy_model is sample_model."),
        ("open", ("--agent-type", "patient_agent"), "OpenConfig.allowed_agents allows only simple_agent, but "),
        (
            "open",
            ("--agent-type", "gymnasium_agent"),
            "it plays with /reset and /step, but open lacks /reset and ",
        ),
        ("open", ("--agent-type", "forwarding_agent"), "it does not play in an environment itself"),
        ("modest", (), "modest.allowed_agents must be a list of folder names, such as [simple_agent]."),
    ],
)
def test_unsupported_pairing_is_refused(place, environment, words, problem):
    finished = place.run("ng", "env", "validate", "--resources-server", environment, *words)
    assert (finished.code, problem in finished.err) == (1, True), finished.err


def test_allowed_pairings_are_accepted(place):
    words = ("--resources-server", "choosy", "--agent-type", "simple_agent")
    finished = place.run("ng", "env", "validate", *words)
    assert (finished.code, finished.err) == (0, "")
    finished = place.run("ng", "env", "validate", *words, *SAMPLE, "--allow-unsupported-pairing")
    assert finished.code == 0
    assert finished.err.startswith("note: unsupported pairing: ")


def listed(place, environment):
    finished = place.run("ng", "list", "agents", "--for", environment, "--json")
    assert (finished.code, finished.err) == (0, "")
    return {each["agent"]: each for each in orjson.loads(finished.out)}


def test_agents_that_fit_are_listed(place):
    found = listed(place, "example_single_tool_call")
    assert {name for name, each in found.items() if each["fits"]} == {"simple_agent", "patient_agent"}
    assert found["simple_agent"]["is_own"]
    expected = {
        "aviary_agent": "it plays with /seed_session and /step, but ",
        "gymnasium_agent": "it plays with /reset and /step, but ",
        "harness_agent": "it reaches tools over MCP only, and ",
        "user_simulation_agent": "rows must have user, but ",
        "forwarding_agent": "it does not play in an environment itself",
        "single_agent_turn": "responses_api_agents/single_agent_turn/configs/single_agent_turn.yaml defines no agent ",
    }
    assert {name: found[name]["problems"][0][: len(text)] for name, text in expected.items()} == expected


@pytest.mark.parametrize(
    ("environment", "own"),
    [("blackjack", "gymnasium_agent"), ("aviary", "aviary_agent"), ("open", "simple_agent")],
)
def test_only_the_own_agent_fits(place, environment, own):
    assert [name for name, each in listed(place, environment).items() if each["fits"]] == [own]


def test_agent_with_a_syntax_error_is_listed_with_it(workplace):
    workplace.write("responses_api_agents/broken/app.py", "class X(:")
    config = PATIENT_CONFIG.replace("mcqa_patient_agent", "broken").replace("patient_agent", "broken")
    workplace.write("responses_api_agents/broken/configs/broken.yaml", config)
    found = listed(workplace, "mcqa")["broken"]
    folder = workplace.folder / "responses_api_agents/broken"
    assert found["problems"] == [f"{folder}: cannot be imported. app.py:1: SyntaxError: invalid syntax"]


FRAGILE = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Fragile(SimpleResourcesServer):
    def model_post_init(self, context: object) -> None:
        raise RuntimeError("no index")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def test_server_that_cannot_be_created_does_not_stop_the_check(workplace):
    write_environment(workplace, "fragile", source=FRAGILE)
    workplace.write("rows.jsonl", orjson.dumps(ROWS[0]).decode())
    problem = f"{workplace.folder}/resources_servers/fragile: cannot be checked. app.py:7: RuntimeError: no index"
    assert listed(workplace, "fragile")["gymnasium_agent"]["problems"] == [problem]
    finished = workplace.run("ng", "env", "validate", "--environment", "fragile", "--agent-type", "gymnasium_agent")
    assert "Traceback" not in finished.err.partition("The last lines of fragile's log")[0]


def test_fitting_agents_are_shown_as_table(place):
    finished = place.run("ng", "list", "agents", "--for", "calendar")
    assert (finished.code, finished.err) == (0, "")
    lines = [line.split(maxsplit=2) for line in finished.out.splitlines()]
    assert ["✓", "simple_agent", "it fits; the environment's own"] in [
        [part.strip() for part in line] for line in lines
    ]


def test_own_agent_of_games_fits_by_choice(place):
    """A loop of its own may call routes that its class does not declare."""
    text = CHOOSY.format(name="hand", allowed="").replace("simple_agent", "patient_agent")
    text = text.replace("hand: {entry", "blackjack: {entry").replace("app.py\n", "app.py\n      greeting: Deal!\n", 1)
    place.write("environments/hand/config.yaml", text)
    assert place.run("ng", "env", "validate", "--environment", "hand").code == 0
    assert listed(place, "hand")["patient_agent"] == {
        "agent": "patient_agent", "is_own": True, "problems": [], "fits": True,
    }  # fmt: skip


def test_running_servers_accept_rows_of_the_old_agent(workplace):
    write_environment(workplace, "choosy", ", allowed_agents: [simple_agent]")
    workplace.write("responses_api_agents/patient_agent/app.py", PATIENT_AGENT)
    workplace.write("responses_api_agents/patient_agent/configs/patient_agent.yaml", PATIENT_CONFIG)
    workplace.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in ROWS[1:]))
    words = ("--resources-server", "choosy", "--agent-type", "patient_agent", "--allow-unsupported-pairing", *SAMPLE)
    servers = workplace.start_servers(*words)
    port = servers.head.rpartition(":")[2]
    finished = workplace.run(
        "ng_collect_rollouts", f"+head_server.port={port}", "--input", "rows.jsonl", "--output", "out.jsonl"
    )
    servers.end()
    assert finished.code == 0, finished.err
    rows = [orjson.loads(line) for line in (workplace.folder / "out.jsonl").read_bytes().splitlines()]
    assert [row["greeted_with"] for row in rows] == ["Good morning"] * 2
    record = orjson.loads((workplace.folder / "out_run.json").read_bytes())
    assert len(record["unsupported_pairings"]) == 1
