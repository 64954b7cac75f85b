import json
from http.cookies import SimpleCookie
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from aiohttp import ClientConnectorError, ClientResponseError
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.panel_agent.app import Jar, PanelAgent, PanelAgentConfig

MESSAGE = {
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "type": "message",
    "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"count": 1}'}


def response_of(*output):
    return {
        "id": "resp",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def answer_of(value, status=200, **cookies):
    mock = MagicMock()
    mock.ok = status < 400
    mock.status = status
    mock.read = AsyncMock(return_value=orjson.dumps(value))
    mock.json = AsyncMock(return_value=value)
    mock.content.read = AsyncMock(return_value=orjson.dumps(value))
    mock.cookies = SimpleCookie(cookies)
    mock.raise_for_status.side_effect = ClientResponseError(MagicMock(), (), status=status, message="no")
    return mock


class TestPanel:
    def _server(self) -> PanelAgent:
        config = PanelAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="panel",
            resources_server=ResourcesServerRef(type="resources_servers", name="one"),
            second_server=ResourcesServerRef(type="resources_servers", name="two"),
            model_server=ModelServerRef(type="responses_api_models", name="model"),
            judges=[ModelServerRef(type="responses_api_models", name="judge")],
        )
        return PanelAgent(config=config, server_client=MagicMock(spec=ServerClient))

    def test_rejected_tools_are_reported(self):
        server = self._server()
        answers = {"one": answer_of({"ok": True}), "two": answer_of({"detail": "no"}, status=422)}
        turns = iter([answer_of(response_of(CALL)), answer_of(response_of(MESSAGE))])

        async def post(server_name, url_path, json, cookies, **kwargs):
            assert kwargs["timeout"].total == 600
            return next(turns) if server_name == "model" else answers[server_name]

        server.server_client.post = post
        output = TestClient(server.setup_webserver()).post("/v1/responses", json={"input": "q"}).json()["output"]
        refusal = {"error": "HTTP 422", "content": '{"detail":"no"}'}
        assert json.loads(output[1]["output"]) == [{"ok": True}, refusal, refusal]

    def test_cookies_of_all_servers_are_merged(self):
        server = self._server()

        async def post(server_name, url_path, json=None, cookies=None, **kwargs):
            if url_path == "/seed_session":
                return answer_of({}, **{f"Env___{server_name}": "e"})
            if url_path == "/verify":
                assert sorted(cookies) == ["Agent___panel", "Env___one", "Env___two"]
                return answer_of({**json, "reward": 1.0})
            return answer_of(response_of(MESSAGE), **({"Agent___panel": "a"} if server_name == "panel" else {}))

        server.server_client.post = post
        res = TestClient(server.setup_webserver()).post("/run", json={"responses_create_params": {"input": "q"}})
        assert (res.json()["reward"], res.json()["opinions"]) == (1.0, ["Done."])

    async def test_an_unreachable_server_is_tried_three_times(self):
        server = self._server()
        error = ClientConnectorError(MagicMock(), OSError("refused"))
        server.server_client.post = AsyncMock(side_effect=error)
        with pytest.raises(RuntimeError, match="one/verify failed"):
            await server._post("one", "/verify", {}, Jar())
        assert server.server_client.post.await_count == 3
