"""Changes that an author may make to the methods' signatures and to the routes."""

from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import JSONResponse

from nemo_gym import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.testing import reply
from tests.each_case import each_case
from tests.servers.model_routes.scripted import (
    COMPLETION,
    GREETING,
    HELLO,
    ScriptedModel,
    events_in,
    http_client,
    server_of,
)

BODY = Body()


class OwnParams(NeMoGymResponseCreateParamsNonStreaming):
    seed: int | None = None


class RequestFirst(ScriptedModel):
    """Takes the request before the body, its own body type, and a plain `def`."""

    def responses(self, request: Request, body: Annotated[OwnParams, Body()]) -> NeMoGymResponse:
        assert request.session["session_id"]
        return self._answer(body)

    async def chat_completions(
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = BODY
    ) -> NeMoGymChatCompletion:
        assert request.session["session_id"]
        return self._answer(body)


@each_case(
    ("path", "body", "answer"),
    [
        ("/v1/responses", {"input": "Hello", "seed": 1}, reply("Hi there")),
        ("/v1/responses", {"input": "Hello", "seed": 1, "stream": True}, reply("Hi there")),
        ("/v1/messages", GREETING, reply("Hi there")),
        ("/v1/chat/completions", {"messages": HELLO}, COMPLETION),
        (
            "/v1/chat/completions",
            {"messages": HELLO, "stream": True},
            COMPLETION,
        ),
    ],
)
async def test_method_may_take_request_and_own_body_type(path, body, answer):
    server = server_of(RequestFirst, answer)
    async with http_client(server) as client:
        answered = await client.post(path, json=body)
    assert answered.status_code == 200
    assert "Hi there" in answered.text
    expected = NeMoGymChatCompletionCreateParamsNonStreaming if "chat" in path else OwnParams
    assert type(server.asked[0]) is expected
    assert getattr(server.asked[0], "seed", None) == body.get("seed")


class BodyByDefault(ScriptedModel):
    """Declares the body with `= Body()`, as published servers do."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = BODY) -> NeMoGymResponse:
        return self._answer(body)


async def test_body_as_default_value_supports_streaming():
    server = server_of(BodyByDefault, reply("Hi there"))
    async with http_client(server) as client:
        streamed = await client.post("/v1/responses", json={"input": "Hello", "stream": True, "spam": 1})
        refused = await client.post("/v1/responses", json={"input": "Hello", "spam": 1})
    assert [event["type"] for event in events_in(streamed.text)][-1] == "response.completed"
    assert refused.json()["detail"][0]["loc"] == ["body", "spam"]
    assert [asked.input for asked in server.asked] == ["Hello"]


class Untyped(ScriptedModel):
    """Reads requests itself."""

    async def responses(self, request: Request) -> Any:
        return {"read": await request.json()}

    async def chat_completions(self, body: dict) -> Any:
        return {"read": body}


async def test_untyped_method_gets_its_route_unchanged():
    async with http_client(server_of(Untyped, None)) as client:
        for path in ("/v1/responses", "/v1/chat/completions"):
            answer = await client.post(path, json={"stream": True, "spam": 1})
            assert answer.json() == {"read": {"stream": True, "spam": 1}}
        assert (await client.post("/v1/messages", json=GREETING)).status_code == 404


class WithRoutesOfItsOwn(ScriptedModel):
    """Replaces one route and adds another."""

    def setup_webserver(self):
        app = super().setup_webserver()
        app.router.routes = [route for route in app.routes if getattr(route, "path", None) != "/v1/messages"]
        app.post("/v1/messages")(self.messages)
        app.get("/v1/models")(self.models)
        return app

    async def messages(self, body: dict) -> dict:
        return {"mine": body}

    async def models(self) -> list[str]:
        return ["m"]


async def test_author_may_replace_and_add_routes():
    async with http_client(server_of(WithRoutesOfItsOwn, reply("Hi there"))) as client:
        assert (await client.post("/v1/messages", json={"a": 1})).json() == {"mine": {"a": 1}}
        assert (await client.get("/v1/models")).json() == ["m"]
        assert (await client.post("/v1/responses", json={"input": "Hello"})).status_code == 200


async def test_rollout_prefix_works_for_every_route():
    async with http_client(server_of(ScriptedModel, reply("Hi there"))) as client:
        answer = await client.post("/ng-rollout/3-1/v1/messages", json=GREETING)
    assert answer.json()["content"][0]["text"] == "Hi there"


def test_documentation_shows_the_typed_bodies():
    document = server_of(ScriptedModel, None).setup_webserver().openapi()
    bodies = {
        path: route["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for path, route in document["paths"].items()
    }
    assert bodies == {
        "/v1/responses": "ResponseCreateParams",
        "/v1/chat/completions": "ChatCompletionCreateParams",
        "/v1/messages": "AnthropicCreateParams",
    }
    answers = {path: route["post"]["responses"]["200"]["content"] for path, route in document["paths"].items()}
    assert all(set(content) == {"application/json", "text/event-stream"} for content in answers.values())
    assert answers["/v1/responses"]["application/json"]["schema"]["$ref"].endswith("/Response")


class Written(ScriptedModel):
    """Returns its own response objects."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming):
        return JSONResponse(reply("Hi there").model_dump(), self.answer)

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming):
        return JSONResponse(COMPLETION.model_dump(), self.answer)


@each_case("status", [200, 418])
@each_case("stream", [False, True])
@each_case(
    ("path", "body"),
    [("/v1/responses", {"input": "Hello"}), ("/v1/messages", GREETING), ("/v1/chat/completions", {"messages": HELLO})],
)
async def test_method_may_return_its_own_response_object(path, body, stream, status):
    async with http_client(server_of(Written, status)) as client:
        answer = await client.post(path, json={**body, "stream": stream})
    assert answer.status_code == status
    assert "Hi there" in answer.text
    assert ("text/event-stream" in answer.headers["content-type"]) == (stream and status == 200)
