from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from pytest import fixture

from nemo_gym.base_resources_server import BaseVerifyRequest
from nemo_gym.openai_utils import (
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient
from resources_servers.summed_metrics.app import SummedMetricsResourcesServer, SummedMetricsResourcesServerConfig


@fixture
def server() -> SummedMetricsResourcesServer:
    return SummedMetricsResourcesServer(
        config=SummedMetricsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name=""),
        server_client=MagicMock(spec=ServerClient),
    )


async def test_items_are_distinguished_by_class(server: SummedMetricsResourcesServer) -> None:
    response = NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[
            NeMoGymResponseFunctionToolCall(arguments="{}", call_id="c1", name="look", type="function_call"),
            NeMoGymFunctionCallOutput(call_id="c1", output="nothing", type="function_call_output"),
            NeMoGymResponseOutputMessage(
                id="msg", content=[NeMoGymResponseOutputText(annotations=[], text="Nothing.")], role="assistant"
            ),
        ],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    result = await server.verify(BaseVerifyRequest(responses_create_params={"input": "Look."}, response=response))
    assert (result.reward, result.num_calls, result.num_messages) == (1.0, 1, 1)
    # The same after a round trip through JSON.
    again = BaseVerifyRequest.model_validate_json(result.model_dump_json())
    assert (await server.verify(again)).details == {"names": ["look"]}


def test_the_aggregation_is_the_servers_own(server: SummedMetricsResourcesServer) -> None:
    client = TestClient(server.setup_webserver())
    rows = [{"_ng_task_index": n, "reward": 1.0, "num_messages": 2, "num_calls": 0} for n in range(3)]
    answer = client.post("/aggregate_metrics", json={"verify_responses": rows}).json()
    assert answer["key_metrics"] == {"sum/num_messages": 6, "mean/reward": 1.0}
    assert answer["agent_metrics"]["max/num_messages"] == 2
