from unittest.mock import AsyncMock, MagicMock

import orjson
from fastapi import Request, Response
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_agents.jar_agent.app import JarAgent, JarAgentConfig, JarAgentRunRequest

RESPONSE = {
    "id": "resp_1",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ROW = {"responses_create_params": {"input": "hi"}, "step": 3}


class TestJarAgent:
    def _server(self) -> JarAgent:
        config = JarAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="jar",
            resources_server=ResourcesServerRef(type="resources_servers", name="env"),
            model_server=ModelServerRef(type="responses_api_models", name="model"),
        )
        server = JarAgent(config=config, server_client=MagicMock(spec=ServerClient))
        answers = []
        for number, content in enumerate(({}, {}, RESPONSE, {**ROW, "response": RESPONSE, "reward": 1.0})):
            mock = AsyncMock()
            mock.ok = True
            mock.cookies = {f"cookie_{number}": str(number)}
            mock.read = AsyncMock(return_value=orjson.dumps(content))
            answers.append(mock)
        server.server_client.post = AsyncMock(side_effect=answers)
        return server

    def test_cookies_of_all_calls_come_back(self) -> None:
        client = TestClient(self._server().setup_webserver())
        res = client.post("/run", json=ROW, cookies={"mine": "yes"})
        assert res.status_code == 200
        assert {f"cookie_{n}": str(n) for n in range(4)}.items() <= dict(res.cookies).items()
        assert res.headers["x-counted"] == "5"

    async def test_called_as_methods(self) -> None:
        server = self._server()
        request = MagicMock(spec=Request)
        request.cookies = {}
        response = Response()
        verified = await server.run(request, response, JarAgentRunRequest.model_validate(ROW))
        assert verified.reward == 1.0
        assert "cookie_3=3" in response.headers["set-cookie"] or "cookie_3=3" in str(response.raw_headers)

        mock = AsyncMock()
        mock.ok = True
        mock.read = AsyncMock(return_value=orjson.dumps(RESPONSE))
        server.server_client.post = AsyncMock(return_value=mock)
        answered = await server.responses(request, NeMoGymResponseCreateParamsNonStreaming(input="hi"))
        assert answered.output_text == ""
