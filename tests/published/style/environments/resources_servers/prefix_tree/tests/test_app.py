from unittest.mock import MagicMock

import pytest
from app import PrefixTreeResourcesServer, PrefixTreeResourcesServerConfig, Tree

from nemo_gym.base_resources_server import BaseVerifyRequest
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient


def _server(**fields) -> PrefixTreeResourcesServer:
    config = PrefixTreeResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="", words=["gold", "good"])
    return PrefixTreeResourcesServer(config=config, server_client=MagicMock(spec=ServerClient), **fields)


@pytest.mark.parametrize(
    "text, threshold, reward", [("go", 2, 1.0), ("go", 3, 0.0), ("gx", 2, 0.0), ("golden", 2, 0.0)]
)
@pytest.mark.asyncio
async def test_verify(text: str, threshold: int, reward: float) -> None:
    server = _server(threshold=threshold)
    assert isinstance(server.tree, Tree)
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    response = NeMoGymResponse.model_validate(
        {
            "id": "resp",
            "created_at": 0,
            "model": "dummy",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    body = BaseVerifyRequest(responses_create_params={"input": "go"}, response=response)
    assert (await server.verify(body)).reward == reward
