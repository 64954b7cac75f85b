"""The schema of an environment: what a row needs, and what the environment offers."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nemo_gym.contract.environment import open_environment
from nemo_gym.contract.schema import schema_of
from nemo_gym.errors import LaunchError
from nemo_gym.jsonl import JsonObject, read_rows, write_rows

REPOSITORY = Path(__file__).parents[2]
NEEDS_DATA = {"workbench"}
"""Benchmarks whose server reads files that only their preparation makes."""
FOLDERS = [
    folder
    for tier in ("resources_servers", "benchmarks")
    for folder in sorted((REPOSITORY / tier).iterdir())
    if folder.name[0] not in "._" and folder.name not in NEEDS_DATA
]
APP = '''
from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
    tool,
)


class Config(BaseResourcesServerConfig):
    bonus: float = 0.5
    """What a short answer adds."""
    secret: str


class Seed(BaseSeedSessionRequest):
    level: int = 1


class Request(BaseVerifyRequest):
    level: int
    words: list[str] | None = None
    """The words to use."""


class Response(BaseVerifyResponse):
    is_short: bool


class Server(SimpleResourcesServer):
    config: Config

    @tool
    async def look(self, where: str, times: int = 2) -> str:
        """Look at something."""
        return where

    async def seed_session(self, body: Seed) -> None:
        pass

    async def verify(self, body: Request) -> Response:
        VERIFY
'''
GRADE = "return Response(**body.model_dump(), reward=1.0, is_short=True)"
OBSERVED = "return BaseVerifyResponse.grade(body, reward=1.0, found=None if 'sure' in body.response.last_text else 3)"
CONFIG = """
words:
  resources_servers:
    words: {entrypoint: app.py, secret: abc}
words_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: words}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [DATASET]
"""
EXAMPLE = "{name: example, type: example, jsonl_fpath: rows.jsonl}"
ROW = {"responses_create_params": {"input": "Go."}, "level": 3, "hint": "easy"}


async def schema_with(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    verify: str = GRADE,
    dataset: str = EXAMPLE,
    row: JsonObject = ROW,
    app: str = APP,
) -> JsonObject:
    server = folder / "resources_servers" / "words"
    (server / "configs").mkdir(parents=True)
    (server / "app.py").write_text(app.replace("VERIFY", verify))
    (server / "configs" / "words.yaml").write_text(CONFIG.replace("DATASET", dataset))
    write_rows(folder / "rows.jsonl", [row])
    monkeypatch.chdir(folder)
    with open_environment(server) as environment:
        return await schema_of(environment)


async def test_fields_come_from_all_request_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = await schema_with(tmp_path, monkeypatch)
    fields = schema["properties"]
    assert list(fields) == ["responses_create_params", "level", "words", "hint"]
    # `verify` requires the level, although `seed_session` does not.
    assert schema["required"] == ["responses_create_params", "level"]
    assert fields["level"] == {"type": "integer"}
    assert fields["words"]["description"] == "The words to use."
    assert fields["hint"] == {"description": "In the example rows. The server does not declare it."}
    assert schema["examples"] == [ROW]


TASK_DATA = """
from pydantic import BaseModel


class TaskData(BaseModel):
    level: int
    hint: str = "none"
    \"\"\"What the model may read first.\"\"\"
"""


async def test_task_data_describes_the_rows_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resources_servers" / "words").mkdir(parents=True)
    (tmp_path / "resources_servers" / "words" / "task_data.py").write_text(TASK_DATA)
    session = ("async def seed_session(self, body: Seed)", "async def seed_session(self, body: SessionRequest)")
    imported = "from nemo_gym import ResourcesSeedSessionRequest as SessionRequest\n"
    fields = (await schema_with(tmp_path, monkeypatch, app=imported + APP.replace(*session)))["properties"]
    assert list(fields) == ["responses_create_params", "level", "hint", "words"]
    assert fields["hint"] == {"type": "string", "default": "none", "description": "What the model may read first."}


async def test_tools_settings_and_response_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    details = (await schema_with(tmp_path, monkeypatch))["x-nemo-gym"]
    (look,) = details["tools"]
    assert (look["name"], look["description"], look["parameters"]["required"]) == (
        "look",
        "Look at something.",
        ["where"],
    )
    assert details["settings"]["properties"] == {
        "bonus": {"type": "number", "default": 0.5, "description": "What a short answer adds."},
        "secret": {"type": "string"},
    }
    assert details["settings"]["required"] == ["secret"]
    assert details["verify_adds"] == {"reward": {"type": "number"}, "is_short": {"type": "boolean"}}


async def test_tools_of_the_rows_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dig = {"type": "function", "name": "dig", "description": "Dig.", "parameters": {"type": "object"}}
    row = {"responses_create_params": {"input": "Go.", "tools": [dig]}, "level": 3}
    tools = (await schema_with(tmp_path, monkeypatch, row=row))["x-nemo-gym"]["tools"]
    assert [tool["name"] for tool in tools] == ["look", "dig"]
    assert tools[1] == {"name": "dig", "description": "Dig.", "parameters": {"type": "object"}}


async def test_undeclared_results_are_seen_by_playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resources_servers" / "words").mkdir(parents=True)
    oracle = 'def solve(row):\n    return ["three"]\n'
    (tmp_path / "resources_servers" / "words" / "oracle.py").write_text(oracle)
    schema = await schema_with(tmp_path, monkeypatch, verify=OBSERVED)
    assert schema["x-nemo-gym"]["verify_adds"]["found"] == {"type": ["integer", "null"]}
    assert "verify_adds_note" not in schema["x-nemo-gym"]


async def test_broken_verifier_leaves_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = await schema_with(tmp_path, monkeypatch, verify="return 1 / 0")
    note = schema["x-nemo-gym"]["verify_adds_note"]
    assert note.startswith("the first example row could not be played: app.py:")
    assert "ZeroDivisionError" in note
    assert list(schema["x-nemo-gym"]["verify_adds"]) == ["reward", "is_short"]


@pytest.mark.parametrize("params", ["Go.", None, {"tools": 5}, {"tools": [5]}])
async def test_invalid_request_of_a_row_leaves_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: object
) -> None:
    schema = await schema_with(tmp_path, monkeypatch, row={**ROW, "responses_create_params": params})
    assert schema["x-nemo-gym"]["verify_adds_note"].startswith("the first example row could not be played: ")
    assert list(schema["x-nemo-gym"]["verify_adds"]) == ["reward", "is_short"]


async def test_server_that_cannot_be_created_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = f"{APP}\n    def model_post_init(self, context: object) -> None:\n        raise RuntimeError('no index')\n"
    with pytest.raises(LaunchError, match=r"words: cannot be created\. app\.py:\d+: RuntimeError: no index"):
        await schema_with(tmp_path, monkeypatch, app=app)


async def test_prompt_decides_which_fields_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompt.yaml").write_text("user: '{question} In {style[0]} style: {{}}'\n")
    dataset = EXAMPLE.replace("}", ", prompt_config: prompt.yaml}")
    row = {"level": 1, "question": "Why?", "style": ["plain"]}
    schema = await schema_with(tmp_path, monkeypatch, dataset=dataset, row=row)
    assert schema["required"] == ["level", "question", "style"]
    assert schema["properties"]["question"] == {"description": "A field of prompt.yaml."}
    # As in the file, because a row with an input of its own is rejected.
    assert schema["examples"] == [row]


async def test_group_verification_is_a_setting_of_its_servers() -> None:
    with open_environment(REPOSITORY / "resources_servers" / "genrm_compare") as environment:
        schema = await schema_of(environment)
    setting = schema["x-nemo-gym"]["settings"]["properties"]["group_verification"]
    assert setting["description"] == "Required if the server's class overrides `verify_group`."


async def test_every_field_of_visual_reasoning_is_described() -> None:
    with open_environment(REPOSITORY / "resources_servers" / "visual_reasoning") as environment:
        schema = await schema_of(environment)
    assert [name for name, field in schema["properties"].items() if "description" not in field] == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
async def test_examples_fit_the_schema(folder: Path) -> None:
    with open_environment(folder) as environment:
        schema = await schema_of(environment)
        validator = Draft202012Validator(schema)
        validator.check_schema(schema)
        for row in read_rows(folder / "data" / "example.jsonl"):
            validator.validate(row)
    assert "verify_adds_note" not in schema["x-nemo-gym"]
