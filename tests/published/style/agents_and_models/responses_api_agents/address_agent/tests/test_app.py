from unittest.mock import AsyncMock, MagicMock, patch

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.address_agent.app import AddressAgent, AddressAgentConfig, AddressAgentRunRequest

MODULE = "responses_api_agents.address_agent.app"
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
ROW = {"responses_create_params": {"input": "hi"}, "step": 3, "_ng_task_index": 4, "_ng_rollout_index": 1}


def _answer(content) -> MagicMock:
    answer = MagicMock(ok=True, cookies={"session": MagicMock(value="s")})
    answer.json = AsyncMock(return_value=content)
    return answer


async def test_everything_is_called_by_its_address() -> None:
    agent = AddressAgent(
        config=AddressAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            resources_server=ResourcesServerRef(type="resources_servers", name="env"),
            model_server=ModelServerRef(type="responses_api_models", name="model"),
        ),
        server_client=MagicMock(spec=ServerClient),
    )
    config = {
        "env": {"resources_servers": {"e": {"host": "10.0.0.7", "port": 81}}},
        "model": {"responses_api_models": {"m": {"host": "10.0.0.8", "port": 82}}},
    }
    agent.server_client.global_config_dict = config
    agent.server_client._build_server_base_url = lambda block: f"http://{block['host']}:{block['port']}"
    agent.server_client.poll_for_status.return_value = "success"
    session = MagicMock()
    session.post.return_value.__aenter__.return_value = _answer({**ROW, "response": RESPONSE, "reward": 1.0})
    asked = AsyncMock(side_effect=[_answer({}), _answer({"success": True})])
    with (
        patch(f"{MODULE}.get_server_url", return_value="http://10.0.0.7:81"),
        patch(f"{MODULE}.http_request", asked),
        patch(f"{MODULE}.get_global_aiohttp_client", return_value=session),
        patch(f"{MODULE}.maybe_get_global_config_dict", return_value=config),
        patch(f"{MODULE}.NeMoGymAsyncOpenAI") as client,
    ):
        client.return_value.create_response = AsyncMock(return_value=RESPONSE)
        verified = await agent.run(AddressAgentRunRequest.model_validate(ROW))
    assert client.call_args.kwargs["base_url"] == "http://10.0.0.8:82/v1"
    assert asked.call_args_list[0].args == ("POST", "http://10.0.0.7:81/ng-rollout/4-1/seed_session")
    assert asked.call_args.kwargs["url"] == "http://10.0.0.7:81/ng-rollout/4-1/increment_counter"
    assert session.post.call_args.args == ("http://10.0.0.7:81/verify",)
    assert session.post.call_args.kwargs["cookies"] == asked.call_args.kwargs["cookies"] == {"session": "s"}
    assert (verified.reward, verified.debug, verified.status) == (1.0, False, "success")
