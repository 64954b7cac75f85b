from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.prompt import fill_prompt
from nemo_gym.server_utils import ServerClient
from resources_servers.called_judge.app import (
    CalledJudgeResourcesServer,
    CalledJudgeResourcesServerConfig,
    CalledJudgeVerifyRequest,
)


def _response(text: str) -> NeMoGymResponse:
    content = [NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")]
    return NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="judge",
        object="response",
        output=[NeMoGymResponseOutputMessage(id="msg", content=content, role="assistant", type="message")],
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )


def _completion(text: str) -> NeMoGymChatCompletion:
    return NeMoGymChatCompletion(
        id="chat",
        choices=[
            NeMoGymChoice(
                finish_reason="stop",
                index=0,
                message=NeMoGymChatCompletionMessage(role="assistant", content=text, tool_calls=None),
            )
        ],
        created=0,
        model="judge",
        object="chat.completion",
    )


def _server(answer: bytes, ok: bool = True, **settings) -> CalledJudgeResourcesServer:
    config = CalledJudgeResourcesServerConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="called_judge",
        judge_model_server=ModelServerRef(type="responses_api_models", name="judge"),
        judge_prompt_path=str(Path(__file__).resolve().parents[1] / "prompts" / "judge.yaml"),
        **settings,
    )
    mock = MagicMock(ok=ok, cookies={})
    mock.read = AsyncMock(return_value=answer)
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=mock)
    return CalledJudgeResourcesServer(config=config, server_client=client)


def _body() -> dict:
    return {
        "responses_create_params": {"input": "Is the sky blue?"},
        "question": "Is the sky blue?",
        "uuid": "u1",
        "response": _response("It is.").model_dump(),
    }


@pytest.mark.parametrize("use_chat_completions", [False, True])
async def test_the_judges_score_is_the_reward(use_chat_completions: bool) -> None:
    answer = _completion("Score: 7") if use_chat_completions else _response("Score: 7")
    server = _server(answer.model_dump_json().encode(), use_chat_completions=use_chat_completions)
    result = await server.verify(CalledJudgeVerifyRequest.model_validate(_body()))
    assert (result.reward, result.score) == (0.7, 7)
    assert result.model_dump()["uuid"] == "u1"
    sent = server.server_client.post.call_args.kwargs
    assert sent["url_path"] == ("/v1/chat/completions" if use_chat_completions else "/v1/responses")


def test_the_prompt_comes_from_its_file() -> None:
    server = _server(b"")
    messages = fill_prompt(server.prompt, {"question": "Q", "answer": "A", "rubric": "R"})
    assert [each["role"] for each in messages] == ["system", "user"]
    assert messages[1]["content"] == 'Question: Q\nAnswer: A\nR Reply with {"Score: n"} and nothing else.'
    with pytest.raises(KeyError):
        fill_prompt(server.prompt, {"question": "Q"})


@pytest.mark.parametrize(
    "answer, ok",
    [
        (b"out of memory", False),
        (b"not json", True),
        (orjson.dumps({"id": "resp"}), True),
        (_response("I like it.").model_dump_json().encode(), True),
        (_response("Score: high").model_dump_json().encode(), True),
    ],
)
async def test_a_judge_that_fails_is_no_reward(answer: bytes, ok: bool) -> None:
    server = _server(answer, ok)
    with pytest.raises(JudgeError):
        await server.verify(CalledJudgeVerifyRequest.model_validate(_body()))

    reply = TestClient(server.setup_webserver()).post("/verify", json=_body())
    assert reply.status_code == 200
    assert reply.json()["_ng_failure_class"] == "judge_failed"
    assert reply.json()["reward"] == 0.0
    assert reply.json()["uuid"] == "u1"


async def test_a_call_that_raises_is_the_judges_failure() -> None:
    server = _server(b"")
    server.server_client.post.side_effect = ConnectionError("gone")
    with pytest.raises(JudgeError, match="gone"):
        await server.verify(CalledJudgeVerifyRequest.model_validate(_body()))
