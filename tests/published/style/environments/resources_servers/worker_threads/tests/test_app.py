import asyncio
from unittest.mock import MagicMock

import pytest
from app import (
    WorkerThreadsResourcesServer,
    WorkerThreadsResourcesServerConfig,
    WorkerThreadsVerifyRequest,
)

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseOutputMessage, NeMoGymResponseOutputText
from nemo_gym.server_utils import ServerClient

FENCE = "`" * 3


def _server(**settings) -> WorkerThreadsResourcesServer:
    config = WorkerThreadsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="", **settings)
    return WorkerThreadsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def _body(code: str) -> WorkerThreadsVerifyRequest:
    text = NeMoGymResponseOutputText(annotations=[], text=f"So:\n{FENCE}python\n{code}\n{FENCE}", type="output_text")
    response = NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[NeMoGymResponseOutputMessage(id="msg", content=[text], role="assistant", type="message")],
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )
    return WorkerThreadsVerifyRequest(responses_create_params={"input": []}, response=response, expected_stdout="42")


async def test_programs_run_beside_each_other() -> None:
    server = _server()
    results = await asyncio.gather(
        server.verify(_body("print(6 * 7)")),
        server.verify(_body("print(41)")),
        server.verify(_body("raise ValueError('no')")),
    )
    assert [result.reward for result in results] == [1.0, 0.0, 0.0]
    assert "ValueError: no" in results[2].error
    assert server._most_at_once <= 2


async def test_a_program_that_hangs_is_stopped() -> None:
    server = _server(timeout_s=0.3)
    result = await server.verify(_body("import time; time.sleep(60)"))
    assert result.reward == 0.0
    assert "TimeoutError" in result.error


@pytest.mark.parametrize("num_processes", [1, 2])
def test_server_is_created_outside_of_an_event_loop(num_processes: int) -> None:
    assert _server(num_processes=num_processes)._semaphore._value == num_processes
