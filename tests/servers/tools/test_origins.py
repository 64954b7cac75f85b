"""Tools from a class and its bases, from data, and with schemas from data."""

from functools import partial
from typing import Any

from fastapi.testclient import TestClient

from nemo_gym import Tool, tool
from nemo_gym.testing import make_server
from tests.servers.tools.shop import LENGTHS, Basket, Graded, Ware


class Base(Graded):
    @tool
    async def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @tool
    async def leave(self) -> str:
        """Leave."""
        return "bye"


class Louder(Base):
    async def greet(self, name: str) -> str:
        return f"HELLO {name}"

    @tool(name="exit")
    async def leave(self) -> str:
        """Slam the door."""
        return "BYE"


def test_tools_are_inherited_overridden_and_renamed():
    client = TestClient(make_server(Louder).setup_webserver())
    assert [each["name"] for each in client.get("/tools").json()] == ["greet", "exit"]
    assert client.post("/greet", json={"name": "you"}).text == "HELLO you"
    assert client.post("/exit").text == "BYE"
    assert client.post("/leave").status_code == 404


class FromData(Graded):
    def tools(self) -> list[Tool]:
        return [
            Tool.of(partial(self._ask_about, topic), name=f"ask_{topic}", description=f"Ask about {topic}.")
            for topic in ("birds", "stones")
        ]

    async def _ask_about(self, topic: str, question: str) -> str:
        return f"{topic}: {question}"


def test_tools_from_data_come_from_the_tools_method():
    client = TestClient(make_server(FromData).setup_webserver())
    listed = client.get("/tools").json()
    assert [(each["name"], each["description"]) for each in listed] == [
        ("ask_birds", "Ask about birds."),
        ("ask_stones", "Ask about stones."),
    ]
    assert list(listed[0]["parameters"]["properties"]) == ["question"]
    assert client.post("/ask_stones", json={"question": "why"}).text == "stones: why"


class WithSchemaFromData(Graded):
    def tools(self) -> list[Tool]:
        return [Tool.of(self._feet, name="to_feet", description="Metres to feet.", parameters=LENGTHS)]

    async def _feet(self, arguments: dict[str, Any], basket: Basket) -> str:
        basket.wares.append(Ware(title=f"{arguments['metres']:g} m"))
        return f"{arguments['metres'] * 3.28:.2f}, {len(basket.wares)} asked so far"


def test_tool_with_schema_from_data_receives_one_dict():
    client = TestClient(make_server(WithSchemaFromData).setup_webserver())
    assert client.get("/tools").json()[0]["parameters"] == LENGTHS
    assert client.post("/to_feet", json={"metres": 2}).text == "6.56, 1 asked so far"
    rejected = client.post("/to_feet", json={"metres": -1})
    assert rejected.status_code == 422
    assert rejected.text.startswith("Invalid arguments for to_feet: 'metres': -1 is less than the minimum of 0.")
    assert client.post("/to_feet", json={}).text.startswith('Invalid arguments for to_feet: "metres" is a required')
    assert client.post("/to_feet", json={"metres": 1}).text == "3.28, 2 asked so far"


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
ODD = {
    "anything": True,
    "pair": {"type": "array", "items": [{"type": "string"}]},
    "either": {"type": ["string", "null"], "maxLength": 3},
}


class WithOddSchema(WithSchemaFromData):
    def tools(self) -> list[Tool]:
        return [Tool.of(self._feet, name="odd", parameters={"$schema": DRAFT_7, "properties": ODD})]


def test_wrong_arguments_get_a_short_answer():
    response = TestClient(make_server(WithOddSchema).setup_webserver()).post("/odd", json={"either": "x" * 5000})
    assert (response.status_code, len(response.text) < 500) == (422, True)
    assert response.text.endswith(
        "Expected: anything (any, optional), pair (array of any, optional), either (string or null, optional)."
    )
