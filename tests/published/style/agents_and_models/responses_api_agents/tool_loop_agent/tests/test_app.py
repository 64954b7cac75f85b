import json
from http.cookies import SimpleCookie
from unittest.mock import AsyncMock, MagicMock, call

import orjson
import pytest
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient
from pytest import MonkeyPatch

from nemo_gym.base_responses_api_agent import AggregateMetricsRequest
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponseUsage
from nemo_gym.server_utils import ServerClient
from responses_api_agents.tool_loop_agent.app import ToolLoopAgent, ToolLoopAgentConfig

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 12,
}
MESSAGE = {
    "id": "msg_1",
    "content": [{"annotations": [], "text": "Done.", "type": "output_text", "logprobs": None}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}
CALL = {
    "arguments": '{"count": 2}',
    "call_id": "call_1",
    "name": "increment_counter",
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
}


def response_of(*output, **fields):
    return {
        "id": "resp_1",
        "created_at": 1753983920.0,
        "model": "dummy_model",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **fields,
    }


def answer_of(value, **cookies):
    mock = AsyncMock()
    mock.ok = True
    mock.read = AsyncMock(return_value=orjson.dumps(value))
    mock.content.read = AsyncMock(return_value=orjson.dumps(value))
    mock.cookies = SimpleCookie(cookies)
    return mock


def refusal_of(status, content):
    mock = AsyncMock()
    mock.ok = False
    mock.content.read = AsyncMock(return_value=content)
    mock.raise_for_status = MagicMock(side_effect=ClientResponseError(MagicMock(), (), status=status))
    mock.cookies = SimpleCookie()
    return mock


class TestApp:
    def _server(self, **fields) -> ToolLoopAgent:
        config = ToolLoopAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="this_agent",
            resources_server=ResourcesServerRef(type="resources_servers", name="the_environment"),
            model_server=ModelServerRef(type="responses_api_models", name="the_model"),
            **fields,
        )
        return ToolLoopAgent(config=config, server_client=MagicMock(spec=ServerClient))

    def _ask(self, server: ToolLoopAgent, *answers, **kwargs):
        server.server_client.post = AsyncMock(side_effect=answers)
        client = TestClient(server.setup_webserver())
        return client.post("/v1/responses", json={"input": "Count to two."}, **kwargs)

    def test_sanity(self) -> None:
        self._server()

    def test_tool_call_then_answer(self) -> None:
        server = self._server()
        res = self._ask(
            server,
            answer_of(response_of(CALL), model_session="m1"),
            answer_of({"success": True}, env_session="e1"),
            answer_of(response_of(MESSAGE), model_session="m2"),
        )
        assert res.status_code == 200
        output = res.json()["output"]
        assert [o["type"] for o in output] == ["function_call", "function_call_output", "message"]
        assert output[0] == CALL
        assert output[1]["output"] == '{"success":true}'

        first, tool, second = server.server_client.post.call_args_list
        assert [c.kwargs["url_path"] for c in (first, tool, second)] == [
            "/v1/responses",
            "/increment_counter",
            "/v1/responses",
        ]
        assert tool == call(
            server_name="the_environment", url_path="/increment_counter", json={"count": 2}, cookies={}
        )
        # The second request contains the whole conversation.
        asked = second.kwargs["json"].model_dump(exclude_unset=True)["input"]
        assert asked[0] == {"role": "user", "content": "Count to two."}
        assert [item["type"] for item in asked[1:]] == ["function_call", "function_call_output"]
        assert isinstance(first.kwargs["json"].input, list)
        assert len(first.kwargs["json"].input) == 1

    def test_cookies_of_both_servers_are_kept_separate(self) -> None:
        server = self._server()
        res = self._ask(
            server,
            answer_of(response_of(CALL), model_session="m1"),
            answer_of({"success": True}, env_session="e1"),
            answer_of(response_of(MESSAGE), model_session="m2"),
            cookies={"env_session": "e0"},
        )
        first, tool, second = [c.kwargs["cookies"] for c in server.server_client.post.call_args_list]
        assert first is None
        assert tool == {"env_session": "e0"}
        assert {k: v.value for k, v in second.items()} == {"model_session": "m1"}
        assert (res.cookies["env_session"], res.cookies["model_session"]) == ("e1", "m2")

    def test_usage_is_summed(self) -> None:
        res = self._ask(
            self._server(),
            answer_of(response_of(CALL)),
            answer_of({}),
            answer_of(response_of(MESSAGE)),
        )
        assert NeMoGymResponseUsage.model_validate(res.json()["usage"]).total_tokens == 24
        assert res.json()["usage"]["input_tokens_details"]["cached_tokens"] == 6
        assert res.json()["usage"]["output_tokens_details"]["reasoning_tokens"] == 2

    def test_failed_tool_returns_its_body_to_the_model(self) -> None:
        res = self._ask(
            self._server(),
            answer_of(response_of(CALL)),
            refusal_of(400, b"no such counter"),
            answer_of(response_of(MESSAGE)),
        )
        assert json.loads(res.json()["output"][1]["output"]) == {"status": 400, "error": "no such counter"}

    def test_a_failed_model_fails_the_answer(self) -> None:
        with pytest.raises(ClientResponseError) as raised:
            self._ask(self._server(), refusal_of(503, b"overloaded"))
        assert raised.value.response_content == b"overloaded"

    def test_max_steps(self) -> None:
        server = self._server(max_steps=1)
        res = self._ask(server, answer_of(response_of(CALL)), answer_of({}))
        assert [o["type"] for o in res.json()["output"]] == ["function_call", "function_call_output"]

    def test_a_cut_off_answer_ends_the_loop(self) -> None:
        cut_off = response_of(CALL, incomplete_details={"reason": "max_output_tokens"})
        res = self._ask(self._server(), answer_of(cut_off))
        assert res.json()["incomplete_details"] == {"reason": "max_output_tokens"}

    def test_run_chains_cookies(self) -> None:
        server = self._server()
        row = {"responses_create_params": {"input": "hi"}, "expected_count": 2, "uuid": "u-1"}
        verified = row | {"response": response_of(MESSAGE), "reward": 1.0, "extra_metric": 3}
        server.server_client.post = AsyncMock(
            side_effect=[answer_of({}, s="1"), answer_of(response_of(MESSAGE), s="2"), answer_of(verified, s="3")]
        )
        res = TestClient(server.setup_webserver()).post("/run", json=row)
        assert res.status_code == 200
        assert (res.json()["reward"], res.json()["uuid"], res.json()["extra_metric"]) == (1.0, "u-1", 3)
        seeded, asked, graded = server.server_client.post.call_args_list
        assert [c.kwargs["server_name"] for c in (seeded, asked, graded)] == [
            "the_environment",
            "this_agent",
            "the_environment",
        ]
        assert asked.kwargs["cookies"]["s"].value == "1"
        assert graded.kwargs["cookies"]["s"].value == "2"
        assert graded.kwargs["json"]["expected_count"] == 2
        assert graded.kwargs["json"]["response"]["id"] == "resp_1"
        orjson.dumps(graded.kwargs["json"])

    async def test_skip_verification(self) -> None:
        server = self._server(skip_verification=True, skip_verification_reward=0.5)
        server.server_client.post = AsyncMock(side_effect=[answer_of({}), answer_of(response_of(MESSAGE))])
        client = TestClient(server.setup_webserver())
        res = client.post("/run", json={"responses_create_params": {"input": "hi"}}).json()
        assert (res["reward"], res["verification_skipped"]) == (0.5, True)
        with pytest.warns(RuntimeWarning):
            metrics = await server.aggregate_metrics(AggregateMetricsRequest(verify_responses=[{"reward": 1.0}]))
        assert metrics.agent_metrics == {}

    async def test_metrics_are_those_of_the_environment(self) -> None:
        server = self._server()
        metrics = {"group_level_metrics": [], "agent_metrics": {"mean/reward": 1.0}, "key_metrics": {}}
        server.server_client.post = AsyncMock(return_value=answer_of(metrics))
        body = AggregateMetricsRequest(verify_responses=[{"reward": 1.0}])
        assert (await server.aggregate_metrics(body)).agent_metrics == {"mean/reward": 1.0}
        server.server_client.post.assert_awaited_once_with(
            server_name="the_environment", url_path="/aggregate_metrics", json=body
        )

    def test_paths_are_plain_where_nothing_is_captured(self, monkeypatch: MonkeyPatch) -> None:
        server = self._server()
        server.server_client.global_config_dict = {"observability_enabled": False}
        row = {"_ng_task_index": 3, "_ng_rollout_index": 1}
        assert server.url_path_for_run("/v1/responses", row) == "/v1/responses"
        server.server_client.global_config_dict = {"observability_enabled": True}
        assert server.url_path_for_run("/v1/responses", row) == "/ng-rollout/3-1/v1/responses"
        request = MagicMock()
        request.path_params = {"rollout_id": "3-1"}
        assert server.url_path_for_request("/v1/responses", request) == "/ng-rollout/3-1/v1/responses"
