"""Tools that return images, which the model and the result receive as content parts."""

import orjson
from fastapi.testclient import TestClient

from nemo_gym import NeMoGymResponseInputImage, NeMoGymResponseInputText, tool
from nemo_gym.openai_utils import NeMoGymFunctionCallOutput
from nemo_gym.servers.tools.parts import parts_response
from nemo_gym.testing import FakeModel, call, make_server, run
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.servers.tools.shop import Graded

URL = "data:image/png;base64,AAAA"
PARTS = [
    {"type": "input_text", "text": "a dot"},
    {"type": "input_image", "detail": "auto", "image_url": URL},
]


class Camera(Graded):
    @tool
    async def look(self) -> list:
        """Return a picture and its title."""
        return [NeMoGymResponseInputText(text="a dot"), NeMoGymResponseInputImage(image_url=URL)]

    @tool
    async def describe(self) -> list:
        """Return data that only resembles content parts."""
        return PARTS


def make_camera():
    return make_server(Camera, name="camera", domain="other")


async def test_model_and_result_receive_content_parts():
    model = FakeModel([call("look"), "A dot."])
    agent = make_server(
        SimpleAgent,
        model=model,
        servers=[make_camera()],
        resources_server={"type": "resources_servers", "name": "camera"},
        model_server={"type": "responses_api_models", "name": "model"},
    )
    result = await run(agent)
    outputs = [item for item in model.requests[1]["input"] if item.get("type") == "function_call_output"]
    assert [item["output"] for item in outputs] == [PARTS]
    [kept] = [item for item in result.response.output if isinstance(item, NeMoGymFunctionCallOutput)]
    assert kept.output == PARTS


def test_list_of_other_data_stays_text():
    with TestClient(make_camera().setup_webserver()) as client:
        looked, described = client.post("/look"), client.post("/describe")
    assert looked.json() == described.json() == PARTS
    assert "x-nemo-gym-content-parts" in looked.headers
    assert "x-nemo-gym-content-parts" not in described.headers


def test_lone_surrogates_in_parts_are_replaced():
    response = parts_response([NeMoGymResponseInputText(text="half \ud83d of it")])
    assert orjson.loads(response.body) == [{"type": "input_text", "text": "half ? of it"}]
