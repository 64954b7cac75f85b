"""A subclass of the conversing agent, which brings tools, turns, grading and the fields added to the row."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ConfigDict
from starlette.responses import JSONResponse
from starlette.routing import Route

from nemo_gym import (
    BaseVerifyRequest,
    BaseVerifyResponse,
    Conversation,
    ConversingAgent,
    EnvironmentFailed,
    SimpleResourcesServer,
    tool,
)
from nemo_gym.errors import ServerLost, ToolError
from nemo_gym.schemas.rollout import TIME_LEFT_HEADER
from nemo_gym.servers.conversation import LONG_ITEM_BYTES, LONGEST_KEPT_TEXT, MOST_KEPT_BYTES
from nemo_gym.servers.conversing import LARGE_BYTES
from nemo_gym.testing import FakeModel, call, heard, make_server, on_a_port, reply, run, serving
from tests.each_case import each_case


class Shop(SimpleResourcesServer):
    @tool
    async def price(self, item: str) -> str:
        """Return a price."""
        if item == "moon":
            raise ZeroDivisionError("of nothing")
        return f"{item}: 3"

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.tool_calls))


class Broken(Shop):
    async def verify(self, body: BaseVerifyRequest) -> float:
        raise ZeroDivisionError("of nothing")


class Slow(Shop):
    @tool
    async def wait(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""


class Insisting(ConversingAgent):
    """Sends the same message after each answer, until there are three answers."""

    async def responses(self, body: Any) -> None:
        raise NotImplementedError

    async def converse(self, request: Any, body: Any, row: dict[str, Any], session: dict[str, str]) -> Conversation:
        conversation = await self.begin(row["responses_create_params"], session)
        answers = 0
        while not self.is_out_of_steps(conversation) and answers < 3:
            if answers:
                conversation.hear("Are you sure?")
            await self.answer(conversation)
            answers += 1
        conversation.added = {"answers": answers, "turns": conversation.turns}
        return conversation


def agent_on(shop: Shop, *replies: Any, cls: type[ConversingAgent] = Insisting, **settings: Any) -> Any:
    refs = {
        "resources_server": {"type": "resources_servers", "name": "shop"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    return make_server(cls, name="agent", model=FakeModel(replies), servers=[shop], **refs, **settings)


@pytest.fixture
def shop():
    return make_server(Shop, name="shop")


async def test_user_messages_reach_model_and_verifier_in_order(shop):
    agent = agent_on(shop, "Yes?", call("price", item="tea"), "Three.")
    graded = await run(agent, responses_create_params={"input": "Tea?"})
    course = [getattr(item, "role", item.type) for item in graded.response.output]
    assert course == [
        *("assistant", "user"),
        *("function_call", "function_call_output", "assistant", "user"),
        "assistant",
    ]
    assert (graded.reward, graded.answers, graded.turns) == (1.0, 3, 4)
    asked = agent.server_client._connections.model.requests
    assert [len(request["input"]) for request in asked] == [1, 3, 5, 7]
    assert asked[1]["input"][2]["content"] == "Are you sure?"
    assert [each["name"] for each in asked[0]["tools"]] == ["price"]


class Rewriting(Insisting):
    """Changes and replaces earlier items of the conversation."""

    def rewrite(self, conversation: Conversation) -> None:
        conversation.params["input"][0]["content"][0]["text"] = "Coffee?"
        conversation.said[0]["content"][0]["text"] = "No."
        conversation.said[1:2] = []

    async def converse(self, request: Any, body: Any, row: dict[str, Any], session: dict[str, str]) -> Conversation:
        conversation = await self.begin(row["responses_create_params"], session)
        await self.answer(conversation)
        conversation.hear("Are you sure?")
        await self.answer(conversation)
        self.rewrite(conversation)
        await self.answer(conversation)
        return conversation


async def test_agent_may_rewrite_any_part_of_a_conversation(shop):
    agent = agent_on(shop, "Yes?", "Quite.", "Bye.", cls=Rewriting)
    tea = {"role": "user", "content": [{"type": "input_text", "text": "Tea?"}]}
    await run(agent, responses_create_params={"input": [tea]})
    texts = [
        [_text_of(item) for item in request["input"]] for request in agent.server_client._connections.model.requests
    ]
    assert texts == [["Tea?"], ["Tea?", "Yes?", "Are you sure?"], ["Coffee?", "No.", "Quite."]]


def _text_of(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


HALF, LONG = "half \ud83d", 12345678901234567890123


class OddAnswers(Shop):
    @tool
    async def odd(self, kind: str) -> Any:
        """Return or raise a text that is not Unicode."""
        if kind == "error":
            raise ToolError(HALF)
        if kind == "failure":
            raise EnvironmentFailed(HALF)
        return HALF if kind == "text" else {"text": HALF, "number": LONG}

    async def verify(self, body: BaseVerifyRequest) -> Any:
        return OddGrade(**body.model_dump(), reward=1.0, note=[HALF, LONG])


class OddGrade(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


@pytest.fixture
def odd():
    return make_server(OddAnswers, name="shop")


@each_case(
    ("kind", "output"),
    [("text", "half ?"), ("error", "Error: half ?"), ("object", f'{{"text":"half ?","number":{LONG}}}')],
)
async def test_lone_surrogates_and_long_integers_of_a_server_are_kept(odd, kind, output):
    graded = await run(agent_on(odd, call("odd", kind=kind), "Yes.", max_steps=2))
    assert [item.output for item in graded.response.output if item.type == "function_call_output"] == [output]
    assert graded.note == ["half ?", LONG]


async def test_failure_with_a_lone_surrogate_keeps_its_class(odd):
    async with on_a_port(agent_on(odd, call("odd", kind="failure"))) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/run", json={"responses_create_params": {"input": []}})
    assert (answer.json()["detail"], answer.json()["failure_class"]) == ("half ?", "environment_failed")


@each_case("padding", [0, LARGE_BYTES])
async def test_long_integer_of_a_row_reaches_the_result(shop, padding):
    graded = await run(agent_on(shop, "Yes.", max_steps=1), number=LONG, padding="x" * padding)
    assert (graded.number, type(graded.number)) == (LONG, int)


class OwnRoute(Shop):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.router.routes.insert(0, Route("/verify", lambda request: JSONResponse([1.0]), methods=["POST"]))
        return app


async def test_list_of_an_own_verify_route_is_the_environments_fault():
    with pytest.raises(EnvironmentFailed, match="shop: /verify returned a list, not an object"):
        await run(agent_on(make_server(OwnRoute, name="shop"), "Yes.", max_steps=1))


async def test_max_steps_limit_the_whole_conversation(shop):
    graded = await run(agent_on(shop, "Yes?", call("price", item="tea"), max_steps=3))
    assert (graded.turns, graded.answers, graded.reward) == (3, 2, 2.0)


async def test_failing_tool_closes_the_session(shop):
    agent = agent_on(shop, "Yes?", call("price", item="moon"))
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="of nothing"):
            await run(agent)
        assert len(shop.sessions) == 0


async def failure_of(agent: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    row = {"responses_create_params": {"input": "Tea?"}}
    async with on_a_port(agent) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/run", json=row, headers=headers, timeout=60)
        assert answer.status_code >= 500
        return answer.json()


async def test_failure_keeps_the_conversation_so_far(shop):
    failure = await failure_of(agent_on(shop, call("price", item="tea"), "Three.", call("price", item="moon")))
    kept = failure["conversation"]
    assert kept["omitted"] == 0
    said = [item.get("output") or item.get("arguments") or _text_of(item) for item in kept["items"]]
    assert said == ['{"item":"tea"}', "tea: 3", "Three.", "Are you sure?", '{"item":"moon"}']


async def test_failed_verifier_and_timeout_keep_the_conversation(shop):
    failure = await failure_of(agent_on(make_server(Broken, name="shop"), "Yes?"))
    assert [_text_of(item) for item in failure["conversation"]["items"]] == ["Yes?", "Are you sure?"] * 2 + ["Yes?"]
    timed_out = await failure_of(agent_on(make_server(Slow, name="shop"), call("wait")), {TIME_LEFT_HEADER: "1"})
    assert timed_out["failure_class"] == "timeout"
    assert [item["name"] for item in timed_out["conversation"]["items"]] == ["wait"]


async def test_long_conversation_of_a_failure_is_shortened(shop):
    agent = agent_on(shop, *["x" * 100_000] * 2, *[call("price", item="tea")] * 20, call("price", item="moon"))
    kept = (await failure_of(agent))["conversation"]
    assert kept["omitted"] == 0
    assert _text_of(kept["items"][0]) == "x" * LONGEST_KEPT_TEXT + "… (100000 characters)"
    kept = (
        await failure_of(
            agent_on(shop, *["x" * 100_000] * 2, *[call("price", item="y" * 15_000)] * 6, call("price", item="moon"))
        )
    )["conversation"]
    assert kept["omitted"] > 0
    assert kept["items"][-1]["arguments"] == '{"item":"moon"}'
    assert len(orjson.dumps(kept)) < MOST_KEPT_BYTES + 1000


def test_reply_may_contain_user_messages():
    response = reply("Which one?", heard("The second."), call("price", item="tea"))
    assert [getattr(item, "role", item.type) for item in response.output] == ["assistant", "user", "function_call"]
    assert type(response).model_validate(response.model_dump(mode="json")) == response
    assert response.last_text == "Which one?"


class Gone(Shop):
    @tool
    async def vanish(self) -> str:
        """Fail like a server that was restarted."""
        raise ServerLost("the rollout's state is lost", tier="environment")


async def test_lost_rollout_is_never_shown_to_the_model():
    agent = agent_on(make_server(Gone, name="shop"), call("vanish"), "Fine.", tool_faults="tell_model")
    with pytest.raises(ServerLost, match="the rollout's state is lost"):
        await run(agent)


async def test_long_items_reach_the_model_unchanged():
    texts = ["é" * LONG_ITEM_BYTES, "short", "a" * LONG_ITEM_BYTES, '"quoted"\n', "b"]
    row = {"responses_create_params": {"input": [{"role": "user", "content": text} for text in texts]}}
    agent = agent_on(make_server(Shop, name="shop"), call("price", item="tea"), "Three.")
    assert (await run(agent, **row)).reward == 1.0
    requests = agent.server_client._connections.model.requests
    assert len(requests) > 2
    for request in requests:
        assert [item["content"] for item in request["input"][: len(texts)]] == texts


class Recounting(Shop):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse.grade(body, reward=0.5, answers=99)


async def test_verifier_replaces_fields_that_the_agent_added():
    agent = agent_on(make_server(Recounting, name="shop"), *["Yes?"] * 3)
    async with on_a_port(agent) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/run", json={"responses_create_params": {"input": "Tea?"}}, timeout=60)
    graded = answer.json()
    assert (graded["reward"], graded["answers"], graded["turns"]) == (0.5, 99, 3)
    assert graded["responses_create_params"]["input"] == "Tea?"
    assert answer.text.count('"answers"') == 1
