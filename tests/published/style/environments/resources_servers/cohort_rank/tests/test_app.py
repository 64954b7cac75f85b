import asyncio
from unittest.mock import MagicMock

import pytest
from app import CohortRankConfig, CohortRankResourcesServer, CohortRankVerifyRequest

from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient


def said(text: str) -> NeMoGymResponse:
    message = NeMoGymResponseOutputMessage(
        id="msg",
        content=[NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")],
        role="assistant",
        status="completed",
        type="message",
    )
    return NeMoGymResponse(
        id="r",
        created_at=0.0,
        model="m",
        object="response",
        output=[message],
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )


def body(rollout: int, text: str) -> CohortRankVerifyRequest:
    return CohortRankVerifyRequest(
        responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input="hi"),
        response=said(text),
        **{"_ng_task_index": 0, "_ng_rollout_index": rollout},
    )


def make_server(**kwargs) -> CohortRankResourcesServer:
    config = CohortRankConfig(host="0.0.0.0", port=8080, entrypoint="", name="", **kwargs)
    return CohortRankResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


@pytest.mark.asyncio
async def test_the_longer_answer_wins() -> None:
    server = make_server()
    graded = await asyncio.gather(server.verify(body(0, "a")), server.verify(body(1, "bbb")))
    assert [each.reward for each in graded] == [0.0, 1.0]
    assert graded[0].group_size == 2


@pytest.mark.asyncio
async def test_a_group_that_is_never_whole() -> None:
    with pytest.raises(asyncio.TimeoutError):
        await make_server(group_timeout_s=0.01).verify(body(0, "a"))
