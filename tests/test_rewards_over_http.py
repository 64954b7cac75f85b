"""Environments score the same over HTTP as by direct method calls: one run, real processes, scripted replies."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nemo_gym.calls.client import ServerClient
from nemo_gym.config.loading import load
from nemo_gym.config.models import RunConfig
from nemo_gym.jsonl import read_rows
from nemo_gym.launcher.local import launch
from nemo_gym.servers.tools.arguments import WrongArguments
from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.testing import call, make_server, reply
from resources_servers.example_multi_step.app import MultiStepServer
from resources_servers.example_session_state_mgmt.app import CounterServer
from resources_servers.example_single_tool_call.app import WeatherServer
from resources_servers.mcqa.app import McqaServer
from resources_servers.mcqa.prepare import prepare
from tests.data.real_files import real_file

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent
AGIEVAL_QUESTIONS = {"sat-math": 134, "lsat-lr": 133, "aqua-rat": 133}
GRADING_MODES = {
    "sat-math": "strict_single_letter_boxed",
    "lsat-lr": "lenient_boxed",
    "aqua-rat": "lenient_answer_colon",
}
PARALLEL = 32

SERVERS = {
    "mcqa": McqaServer,
    "example_single_tool_call": WeatherServer,
    "example_multi_step": MultiStepServer,
    "example_session_state_mgmt": CounterServer,
}

Turn = list[dict[str, str]]


class Case(NamedTuple):
    """A row, the model's turns, and the expected reward."""

    environment: str
    row: dict[str, Any]
    script: list[Turn]
    reward: float


def says(text: str) -> Turn:
    return [{"text": text}]


def calls(name: str, **arguments: Any) -> dict[str, str]:
    return {"call": name, "arguments": json.dumps(arguments)}


def examples(environment: str) -> Iterator[dict[str, Any]]:
    return read_rows(REPOSITORY / "resources_servers" / environment / "data" / "example.jsonl")


def weather_cases() -> Iterator[Case]:
    scripts = [
        [[calls("get_weather", city="Oslo")], says("It is cold.")],
        [[calls("get_weather", city="Quito"), calls("get_weather", city="La Paz")], says("Both are cold.")],
        [says("I do not know.")],
        [[calls("get_weather", town="Oslo")], [calls("get_wether", city="Oslo")], []],
        [[{"call": "get_weather", "arguments": "{"}], says("")],
    ]
    for row in examples("example_single_tool_call"):
        for script in scripts:
            yield Case("example_single_tool_call", row, script, 1.0)


def multi_step_cases() -> Iterator[Case]:
    for row in examples("example_multi_step"):
        values = row["expected_synonym_values"]
        look_up = [calls("get_synonym_value", synonym=word) for word in row["expected_synonyms"]]
        right = calls("extract_synonym_values", synonym_values=values)
        reversed_ = calls("extract_synonym_values", synonym_values=values[::-1])
        trap = calls("extract_synonym_values", synonym_values=[row["minefield_label_value"], *values])
        broken = {"call": "extract_synonym_values", "arguments": f"{values}"}
        for script, reward in [
            ([look_up, [right], says("Done.")], 1.0),
            ([look_up, [trap], [right], says("Done.")], 1.0),
            ([look_up, [reversed_], says("Done.")], 0.0),
            ([[right], [reversed_], says("Done.")], 0.0),
            ([look_up, [trap], says("Done.")], 0.0),
            ([look_up, [broken], says("Done.")], 0.0),
            ([look_up, says(f"The values are {values}.")], 0.0),
        ]:
            yield Case("example_multi_step", row, script, reward)


def counter_cases() -> Iterator[Case]:
    def add(count: int) -> dict[str, str]:
        return calls("increment_counter", count=count)

    read = calls("get_counter_value")
    broken = {"call": "increment_counter", "arguments": '{"count": '}
    for row in examples("example_session_state_mgmt"):
        owed = row["expected_count"] - row["initial_count"]
        for script, reward in [
            ([[add(owed)], [read], says("Done.")], 1.0),
            ([[add(owed - 7)], [add(7)], says("Done.")], 1.0),
            ([[add(owed + 9), add(-9)], []], 1.0),
            ([[add(owed + 1)], [read], says("Done.")], 0.0),
            ([[broken], [calls("increment_counter", by=owed)], says("Done.")], float(owed == 0)),
            ([says(f"The counter is at {row['expected_count']}.")], float(owed == 0)),
        ]:
            yield Case("example_session_state_mgmt", row, script, reward)


def mcqa_example_cases() -> Iterator[Case]:
    right = [
        r"2 · (4 + 5) = 18, so \boxed{C}",
        r"It is \boxed{the Earth's shadow falls on the Moon}.",
        "It is not the largest city.\nAnswer: Canberra",
        "The robin is a bird and sings.\n**Answer**: (D)",
        "Nothing is copied. <choice>b</choice>",
    ]
    for row, answer in zip(examples("mcqa"), right, strict=True):
        yield Case("mcqa", row, [says(answer)], 1.0)
        for useless in ("", "I cannot say.", r"\boxed{", r"\boxed{Z}", "Answer:", "<choice>"):
            yield Case("mcqa", row, [says(useless)], 0.0)
        yield Case("mcqa", row, [[]], 0.0)


def agieval_cases(folder: Path) -> Iterator[Case]:
    """Yield each question with a correct, a wrong and a useless answer."""
    for name, count in AGIEVAL_QUESTIONS.items():
        source = real_file("agieval", f"{name}.jsonl")
        rows = read_rows(prepare(input=source, output=folder / f"{name}.jsonl", grading_mode=GRADING_MODES[name]))
        form = "Let me see.\nAnswer: {}" if "colon" in GRADING_MODES[name] else r"Let me see. \boxed{{{}}}"
        useless = ["", "It is one of them.", r"\boxed{", r"\boxed{}", "Answer:", "Answer: none of these"]
        for number, row in zip(range(count), rows, strict=False):
            letters = [letter for option in row["options"] for letter in option]
            right = row["expected_answer"]
            wrong = letters[letters.index(right) - 1]
            yield Case("mcqa", row, [says(form.format(right))], 1.0)
            yield Case("mcqa", row, [says(form.format(wrong))], 0.0)
            yield Case("mcqa", row, [says(useless[number % len(useless)])], 0.0)


@pytest.fixture(scope="module")
def endpoint():
    """Start a model endpoint that replies with each row's script, and yield its address."""
    program = REPOSITORY / "tests" / "endpoint" / "scripted.py"
    with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.kill()


@pytest.fixture(scope="module")
def servers(endpoint, tmp_path_factory):
    """Start the four environments, their agents and the model."""
    files = [f"resources_servers/{name}/configs/{name}.yaml" for name in SERVERS]
    run = load(
        [*files, "responses_api_models/openai_model/configs/openai_model.yaml"],
        [
            f"+policy_base_url={endpoint}",
            "+policy_api_key=none",
            "+policy_model_name=scripted",
            "+head_server.port=0",
        ],
        skip_dotenv=True,
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        with launch(run) as running:
            yield running


async def rewards_over_http(run: RunConfig, cases: list[Case]) -> list[float]:
    """Run all cases concurrently on the agents and return their rewards."""
    client = ServerClient.of_run(run)
    gate = asyncio.Semaphore(PARALLEL)

    async def reward_of(case: Case) -> float:
        params = {**case.row["responses_create_params"], "metadata": {"script": json.dumps(case.script)}}
        async with gate:
            answer = await client.post(
                f"{case.environment}_simple_agent", "/run", json={**case.row, "responses_create_params": params}
            )
        assert answer.ok, await answer.read()
        return (await answer.json())["reward"]

    try:
        return await asyncio.gather(*map(reward_of, cases))
    finally:
        await client.aclose()


async def reward_of_methods(case: Case) -> float:
    """Return the reward from calling the server's own methods one after the other."""
    server = make_server(SERVERS[case.environment])
    states: dict[type, Any] = {}

    async def called(method, **arguments):
        kept = {name: states.setdefault(kind, kind()) for name, kind in Handler.of(method).states.items()}
        return await method(**arguments, **kept)

    def as_body(method, fields):
        return {"body": Handler.of(method).open_parameters[0].annotation.model_validate(fields)}

    await called(server.seed_session, **as_body(server.seed_session, case.row))
    tools = {tool.name: tool for tool in server.tools()}
    items = [item for turn in case.script for item in turn]
    for item in items:
        try:
            arguments = tools[item["call"]].arguments.read(json.loads(item["arguments"]))
        except (KeyError, ValueError, WrongArguments):
            continue
        await called(tools[item["call"]].handler.method, **arguments)
    said = [
        item["text"] if "text" in item else call(item["call"]).model_copy(update={"arguments": item["arguments"]})
        for item in items
    ]
    graded = await called(server.verify, **as_body(server.verify, {**case.row, "response": reply(*said).model_dump()}))
    return graded if isinstance(graded, float) else graded.reward


async def check(servers, cases: list[Case]) -> None:
    over_http = await rewards_over_http(servers.run, cases)
    for case, reward in zip(cases, over_http, strict=True):
        assert reward == await reward_of_methods(case) == case.reward, case


@pytest.mark.parametrize("cases", [weather_cases, multi_step_cases, counter_cases, mcqa_example_cases])
async def test_examples_score_equally_over_http(servers, cases):
    made = list(cases())
    await check(servers, made)
    assert len({json.dumps(case.row) for case in made}) == 5


async def test_400_agieval_questions_score_equally_over_http(servers, tmp_path):
    cases = list(agieval_cases(tmp_path))
    assert len(cases) == 3 * 400
    await check(servers, cases)
