from unittest.mock import MagicMock

from app import KeptAgent, KeptAgentConfig
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient

SEED = {
    "agent_session_id": "a-1",
    "episode_id": {"rollout_id": "0-0"},
    "task_id": {"taskset": "words", "task_id": "7"},
    "tool_accesses": [{"kind": "direct_http", "name": "kept_words", "base_url": "http://127.0.0.1:1"}],
}
CLOSE = {"agent_session_id": "a-1", "episode_id": SEED["episode_id"]}


def _agent() -> KeptAgent:
    resources_server = {"type": "resources_servers", "name": "kept_words"}
    config = KeptAgentConfig(host="0.0.0.0", port=8080, entrypoint="", name="", resources_server=resources_server)
    return KeptAgent(config=config, server_client=MagicMock(spec=ServerClient))


def test_session_keeps_a_state_from_seed_to_close() -> None:
    agent = _agent()
    client = TestClient(agent.setup_webserver())
    with client:
        assert client.post("/v1/agent_sessions", json=SEED).status_code == 200
        state = agent.states["a-1"]
        assert (state.request.episode_id.rollout_id, state.tools, state.is_open) == ("0-0", "kept_words", True)
        answer = client.post("/v1/responses", json={"input": "Say fig, good."}).json()
        assert answer["output"][0]["content"][0]["text"] == "fig"
        closed = client.post("/v1/agent_sessions/close", json=CLOSE).json()
        assert (closed["agent_observations"], closed["resources_cookies"]) == (None, {})
        assert (state.is_open, agent.states) == (False, {})
        assert client.post("/v1/responses", json={"input": "Say fig, good."}).status_code == 409


def test_half_open_session_is_closed() -> None:
    agent = _agent()
    with TestClient(agent.setup_webserver(), raise_server_exceptions=False) as client:
        seed = {**SEED, "task_id": {"taskset": "words", "task_id": "half_open"}}
        assert client.post("/v1/agent_sessions", json=seed).status_code == 500
        assert agent.states == {}
