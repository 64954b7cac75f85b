from unittest.mock import AsyncMock, MagicMock, call

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.debate_agent.app import DebateAgent, DebateAgentConfig, DebateRunRequest


def said(text: str) -> dict:
    return {
        "id": "resp",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [
            {
                "id": "msg",
                "role": "assistant",
                "status": "completed",
                "type": "message",
                "content": [{"annotations": [], "text": text, "type": "output_text"}],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 1},
        },
    }


@pytest.fixture
def agent() -> DebateAgent:
    config = DebateAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="debate",
        rounds=2,
        resources_server=ResourcesServerRef(type="resources_servers", name="rs"),
        model_server=ModelServerRef(type="responses_api_models", name="a"),
        opponent_model_server=ModelServerRef(type="responses_api_models", name="b"),
    )
    return DebateAgent(config=config, server_client=MagicMock(spec=ServerClient))


def mocked(content) -> MagicMock:
    mock = MagicMock()
    mock.ok = True
    mock.cookies = MagicMock()
    mock.read = AsyncMock(return_value=orjson.dumps(content))
    mock.json = AsyncMock(return_value=content)
    return mock


class TestApp:
    def test_debate(self, agent: DebateAgent) -> None:
        agent.server_client.post.side_effect = [mocked(said(f"{n}")) for n in range(4)]
        client = TestClient(agent.setup_webserver())
        res = client.post("/v1/responses", json={"input": [{"role": "user", "content": "Begin."}]})
        assert res.status_code == 200
        assert len(res.json()["output"]) == 8
        assert res.json()["usage"]["total_tokens"] == 12
        assert [c.kwargs["server_name"] for c in agent.server_client.post.call_args_list] == ["a", "b", "a", "b"]
        last = agent.server_client.post.call_args_list[-1]
        assert last == call(server_name="b", url_path="/v1/responses", json=last.kwargs["json"])
        assert [getattr(item, "content", None) for item in last.kwargs["json"].input][-1] == "a has spoken."

    def test_run(self, agent: DebateAgent) -> None:
        row = {"responses_create_params": {"input": "Hi."}, "uuid": "u"}
        agent.server_client.post.side_effect = [
            mocked({}),
            mocked(said("x")),
            mocked({**row, "response": said("x"), "reward": 1.0}),
        ]
        client = TestClient(agent.setup_webserver())
        res = client.post("/run", json=row)
        assert (res.json()["reward"], res.json()["uuid"], res.json()["runs"]) == (1.0, "u", 1)
        assert res.headers["x-runs"] == "1"
        assert client.get("/runs").json() == 1

    def test_a_failed_answer(self, agent: DebateAgent) -> None:
        failed = mocked({"detail": "no"})
        failed.ok = False
        agent.server_client.post.side_effect = [mocked({}), failed]
        res = TestClient(agent.setup_webserver()).post("/run", json={"responses_create_params": {"input": "Hi."}})
        assert (res.status_code, res.json()) == (502, {"detail": '{"detail":"no"}'})

    async def test_run_needs_no_real_request(self, agent: DebateAgent) -> None:
        row = {"responses_create_params": {"input": "Hi."}}
        agent.server_client.post.side_effect = [
            mocked({}),
            mocked(said("x")),
            mocked({**row, "response": said("x"), "reward": 0.0}),
        ]
        res = await agent.run(MagicMock(cookies={"a": "b"}), DebateRunRequest(**row))
        assert orjson.loads(res.body)["reward"] == 0.0
