from unittest.mock import MagicMock

import pytest
from app import ManyRewardsResourcesServer, ManyRewardsResourcesServerConfig
from pydantic import ValidationError

from nemo_gym.base_resources_server import BaseMultiRewardVerifyResponse, BaseVerifyRequest
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient


def _body(text: str) -> BaseVerifyRequest:
    response = NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[
            {
                "id": "msg",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        ],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return BaseVerifyRequest(responses_create_params={"input": "Ask."}, response=response)


@pytest.mark.parametrize(
    "text, reward", [("Please sit.", 1.0), ("Sit.", 0.25), ("Please " + "sit " * 20, 0.75), ("sit " * 20, 0.0)]
)
async def test_components_add_up(text: str, reward: float) -> None:
    config = ManyRewardsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = ManyRewardsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    result = await server.verify(_body(text))
    assert result.reward == reward
    assert set(result.reward_components) == {"short", "polite"}


def test_the_components_are_required() -> None:
    with pytest.raises(ValidationError, match="reward_components"):
        BaseMultiRewardVerifyResponse(**_body("").model_dump(), reward=1.0)
