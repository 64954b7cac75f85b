"""What an agent that converses in its own way need not write: tools, turns, grading, what it adds to the row."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym import (
    BaseVerifyRequest,
    Conversation,
    ConversingAgent,
    EnvironmentFailed,
    SimpleResourcesServer,
    tool,
)
from nemo_gym.errors import ServerLost
from nemo_gym.testing import FakeModel, call, heard, make_server, reply, run, serving


class Shop(SimpleResourcesServer):
    @tool
    async def price(self, item: str) -> str:
        """Tell a price."""
        if item == "moon":
            raise ZeroDivisionError("of nothing")
        return f"{item}: 3"

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.tool_calls))


class Insisting(ConversingAgent):
    """Says the same after each answer, until there have been three."""

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


async def test_what_is_heard_stands_between_the_answers_and_reaches_model_and_verifier(shop):
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
    """Writes something else into what was said before, or puts something else in its place."""

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


async def test_a_conversation_may_be_rewritten_to_its_smallest_part(shop):
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


async def test_max_steps_bound_the_whole_conversation(shop):
    graded = await run(agent_on(shop, "Yes?", call("price", item="tea"), max_steps=3))
    assert (graded.turns, graded.answers, graded.reward) == (3, 2, 2.0)


async def test_a_failing_tool_closes_the_session(shop):
    agent = agent_on(shop, "Yes?", call("price", item="moon"))
    async with serving(agent):
        with pytest.raises(EnvironmentFailed, match="of nothing"):
            await run(agent)
        assert len(shop.sessions) == 0


def test_a_users_words_can_stand_in_a_reply():
    told = reply("Which one?", heard("The second."), call("price", item="tea"))
    assert [getattr(item, "role", item.type) for item in told.output] == ["assistant", "user", "function_call"]
    assert type(told).model_validate(told.model_dump(mode="json")) == told
    assert told.last_text == "Which one?"


class Gone(Shop):
    @tool
    async def vanish(self) -> str:
        """Be gone, as a server is that was started again."""
        raise ServerLost("what it held of the rollout is gone", tier="environment")


async def test_that_a_rollout_is_lost_is_never_told_to_the_model():
    agent = agent_on(make_server(Gone, name="shop"), call("vanish"), "Fine.", tool_faults="tell_model")
    with pytest.raises(ServerLost, match="what it held of the rollout is gone"):
        await run(agent)
