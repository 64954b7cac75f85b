"""Tests of `ng env schema`: the tables, JSON Schema, and names that do not exist."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

pytestmark = pytest.mark.slow

PUBLISHED = """
from fastapi import FastAPI

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from pydantic import BaseModel


class OldConfig(BaseResourcesServerConfig):
    pass


class Guess(BaseModel):
    number: int


class OldVerifyRequest(BaseVerifyRequest):
    hidden: int


class OldServer(SimpleResourcesServer):
    config: OldConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/guess")(self.guess)
        return app

    async def guess(self, body: Guess) -> dict:
        return {}

    async def verify(self, body: OldVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


if __name__ == "__main__":
    OldServer.run_webserver()
"""


def lines_of(text: str) -> dict[str, str]:
    """Return each line by its first word, with single spaces."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line and line[0] not in " {}"]
    return {line.partition(" ")[0]: line for line in lines}


def test_row_tools_settings_and_results_are_shown(shared_workplace):
    shown = shared_workplace.run("ng", "env", "schema", "proactive_asking")
    assert (shown.code, shown.err) == (0, "")
    lines = lines_of(shown.out)
    assert lines["expected_booking"] == "expected_booking {tool, arguments} required"
    asked = "The detail to ask for. None if the request is complete."
    assert lines["missing_detail"] == f"missing_detail {{name, asked_with}} – {asked}"
    # The agent of the environment requires this field.
    assert lines["user"].endswith(" required")
    assert lines["order_courier"].startswith("order_courier pickup_address: text, delivery_address: text, date: text")
    assert lines["needless_question_penalty"].startswith("needless_question_penalty number 0.1 The deduction")
    assert lines["was_asked"] == "was_asked true|false"
    assert '  "expected_booking": {' in shown.out


def test_json_schema_describes_the_rows(shared_workplace):
    shown = shared_workplace.run("ng", "env", "schema", "--resources-server", "answer_match", "--json")
    assert (shown.code, shown.err) == (0, "")
    schema = json.loads(shown.out)
    validator = Draft202012Validator(schema)
    validator.validate(schema["examples"][0])
    (problem,) = validator.iter_errors({"responses_create_params": {"input": "?"}})
    assert problem.message == "'expected_answer' is a required property"


def test_prompted_benchmark_requires_fields_of_its_prompt(shared_workplace):
    shown = shared_workplace.run("ng", "env", "schema", "--benchmark", "gsm8k", "--json")
    schema = json.loads(shown.out)
    assert schema["required"] == ["question", "expected_answer"]
    assert "responses_create_params" not in schema["examples"][0]


def test_published_folder_is_described(shared_workplace):
    config = shared_workplace.environment("old", PUBLISHED)
    shown = shared_workplace.run("ng", "env", "schema", config)
    assert shown.code == 0, shown.err
    # Its tools are the routes that it adds.
    assert lines_of(shown.out)["guess"] == "guess number: whole number"
    assert lines_of(shown.out)["hidden"] == "hidden whole number required"
    assert "Fields may be missing here: the environment has no example row to play." in shown.out


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["proactive_askin"], 1, "Did you mean 'proactive_asking'?"),
        ([], 2, "Name an environment, such as 'ng env schema mcqa'."),
        (["--config", "configs/all_examples.yaml"], 1, "expected one environment, found answer_match, "),
        (["mcqa", "gsm8k"], 2, "expected at most one name, got 2: mcqa gsm8k"),
        (["mcqa", "+jsn=true"], 2, "nothing reads this key. Did you mean 'json'?"),
    ],
)
def test_wrong_name_is_reported(shared_workplace, words, code, problem):
    refused = shared_workplace.run("ng", "env", "schema", *words)
    assert (refused.code, refused.out) == (code, "")
    assert problem in refused.err
    assert "Traceback" not in refused.err
