from asyncio import Semaphore
from unittest.mock import AsyncMock, MagicMock, patch

import orjson
from app import HarnessAgent, HarnessAgentConfig, no_usage
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponseUsage
from nemo_gym.server_utils import ServerClient

MODEL_BLOCK = {"host": "10.0.0.7", "port": 9001}
ANSWER = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3,
    },
}


def make_server(**config) -> HarnessAgent:
    server = HarnessAgent(
        config=HarnessAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            resources_server=ResourcesServerRef(type="resources_servers", name="env"),
            model_server=ModelServerRef(type="responses_api_models", name="policy_model"),
            concurrency=2,
        ),
        server_client=MagicMock(spec=ServerClient),
    )
    server.server_client.global_config_dict = config
    server.server_client._build_server_base_url = lambda block: f"http://{block['host']}:{block['port']}"
    return server


def test_a_field_of_any_type() -> None:
    server = make_server()
    assert isinstance(server.sem, Semaphore)


@patch("nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value=MODEL_BLOCK)
def test_the_models_address(look_up: MagicMock) -> None:
    server = make_server()
    assert server.resolve_model_base_url("policy_model") == "http://10.0.0.7:9001/v1"
    # The caller decides, not the switches.
    assert server.resolve_model_base_url("policy_model", rollout_id="3-1") == "http://10.0.0.7:9001/ng-rollout/3-1/v1"
    look_up.assert_called_with(server.server_client.global_config_dict, "policy_model")


@patch("nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value=MODEL_BLOCK)
def test_the_models_address_where_calls_are_recorded(look_up: MagicMock) -> None:
    server = make_server(observability_enabled=True, model_call_capture_dir="/tmp/capture")
    row = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
    assert server.rollout_id_from_run(row) == "3-1-a2"
    assert server.base_url_for_run("http://x:1", row) == "http://x:1/ng-rollout/3-1-a2"
    assert (
        server.resolve_model_base_url("policy_model", server.rollout_id_from_run(row))
        == "http://10.0.0.7:9001/ng-rollout/3-1-a2/v1"
    )


@patch("nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value=MODEL_BLOCK)
def test_run_sums_the_usage_of_all_attempts(look_up: MagicMock) -> None:
    server = make_server()
    row = {"responses_create_params": {"input": "hi"}, "task": "t"}
    answers = []
    for content in ({}, row | {"response": ANSWER, "reward": 1.0}):
        mock = AsyncMock()
        mock.ok = True
        mock.cookies = {"session": "s"}
        mock.read = AsyncMock(return_value=orjson.dumps(content))
        answers.append(mock)
    server.server_client.post = AsyncMock(side_effect=answers)
    with patch.object(HarnessAgent, "_ask_harness", AsyncMock(return_value=ANSWER)):
        res = TestClient(server.setup_webserver()).post("/run", json=row)
    assert res.status_code == 200
    assert res.json()["base_url"] == "http://10.0.0.7:9001/v1"
    sent = server.server_client.post.call_args.kwargs
    assert sent["json"]["response"]["usage"]["total_tokens"] == 6
    assert sent["cookies"] == {"session": "s"}


def test_sum_from_list() -> None:
    usage = NeMoGymResponseUsage.model_validate(ANSWER["usage"])
    assert NeMoGymResponseUsage.sum_from_list([no_usage(), usage, usage]).output_tokens == 4
