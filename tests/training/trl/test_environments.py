"""TRL's environments with a real server process: tools as methods, resets, failures and rewards."""

from __future__ import annotations

import inspect
import logging
from contextlib import chdir
from typing import Literal, get_type_hints

import pytest

from nemo_gym.errors import InvalidTask, UsageError
from nemo_gym.training import trl
from nemo_gym.training.trl.prompts import prompt_of

BOXES = """
import os
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nemo_gym import (
    BaseSeedSessionRequest, BaseVerifyRequest, BaseVerifyResponse, NeMoGymResponseInputImage, SessionState,
    SimpleResourcesServer, ToolError, tool,
)


class Box(SessionState):
    items: list[str] = []
    closed: ClassVar[int] = 0

    async def close(self):
        Box.closed += 1


class SeedRequest(BaseSeedSessionRequest):
    size: int = 3


class VerifyRequest(BaseVerifyRequest):
    expected_items: list[str] = []
    masks: bool = False


class Boxes(SimpleResourcesServer):
    async def seed_session(self, body: SeedRequest, box: Box) -> None:
        box.items = []

    @tool
    async def put(
        self,
        item: Annotated[str, Field(description="What to put\\n into the box")],
        box: Box,
        place: Literal["left", "right"] = "left",
        times: int | None = None,
    ) -> dict[str, int]:
        '''Put something into the box.

        Args:
            item: The author's own words.
        '''
        if item == "lead":
            raise ToolError("too heavy")
        box.items = [*box.items, *[item] * (times or 1)]
        return {"items": len(box.items)}

    @tool
    async def drop(self, box: Box) -> str:
        raise RuntimeError("the box broke")

    @tool
    async def explode(self, box: Box) -> str:
        os._exit(3)

    @tool
    async def photograph(self) -> list:
        return [NeMoGymResponseInputImage(image_url="data:image/png;base64,AAAA")]

    @tool
    async def count_closed(self) -> int:
        return Box.closed

    async def verify(self, body: VerifyRequest, box: Box) -> BaseVerifyResponse:
        said = [getattr(item, "type", "message") for item in body.response.output]
        reward = len(box.items) + 0.5 * ("!" in body.response.output_text) + 0.25 * (said == body.expected_items)
        return BaseVerifyResponse.grade(body, reward=reward, mask_sample=body.masks)
"""
PUT = {"type": "function", "function": {"name": "put", "arguments": {"item": "pen"}}}


@pytest.fixture(scope="module")
def boxes(shared_workplace):
    shared_workplace.environment("boxes", BOXES)
    with chdir(shared_workplace.folder), trl.environment("resources_servers/boxes") as factory:
        yield factory


def said(text):
    return [{"role": "assistant", "content": text}]


def test_tools_are_typed_methods(boxes):
    put = boxes().put
    hints = get_type_hints(put)
    assert hints == {"item": str, "place": Literal["left", "right"], "times": int | None, "return": str}
    assert [(each.name, each.default) for each in inspect.signature(put).parameters.values()] == [
        ("item", inspect.Parameter.empty), ("place", "left"), ("times", None)
    ]  # fmt: skip
    assert inspect.getdoc(put) == (
        "Put something into the box.\n\nArgs:\n    item: What to put into the box\n    place: Place\n    times: Times"
    )
    members = [name for name, _ in inspect.getmembers(type(boxes()), inspect.isfunction) if name[0] != "_"]
    assert members == ["count_closed", "drop", "explode", "photograph", "put", "reset"]


def test_tool_changes_only_its_own_rollout(boxes):
    first, second = boxes(), boxes()
    first.reset()
    second.reset()
    assert first.put(item="pen", times=2) == '{"items":2}'
    assert second.put(item="ink") == '{"items":1}'
    assert boxes.reward([said("!"), said("")], [first, second]) == [2.5, 1.0]


def test_invalid_arguments_are_the_models_fault(boxes):
    box = boxes()
    box.reset()
    assert box.put(item="lead") == "Error: too heavy"
    assert "Invalid arguments for put" in box.put(thing="pen")
    assert boxes.reward([said("")], [box]) == [0.0]


def test_reset_closes_the_rollout_before(boxes):
    box = boxes()
    box.reset()
    before = int(box.count_closed())
    box.put(item="pen")
    box.reset()
    assert int(box.count_closed()) == before + 1
    assert boxes.reward([said("")], [box]) == [0.0]


def test_rollout_is_graded_once(boxes):
    box = boxes()
    box.reset()
    box.put(item="pen")
    assert boxes.reward([said("")], [box]) == boxes.reward([said("!")], [box]) == [1.0]


def test_verifier_sees_calls_and_results(boxes):
    types = ["message", "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    box = boxes()
    box.reset(prompt=prompt_of({"responses_create_params": {"input": "go"}, "expected_items": types}, 0))
    results = [{"role": "tool", "name": "put", "content": "1"}] * 2
    completion = [{"role": "assistant", "content": "Now", "tool_calls": [PUT, PUT]}, *results, *said("Done")]
    assert boxes.reward([completion], [box]) == [0.25]


def test_columns_are_fields_of_the_row(boxes):
    box = boxes()
    box.reset(prompt=[{"role": "user", "content": "go"}], masks=True, size=None)
    assert boxes.reward([said("!")], [box]) == [None]


def test_failed_tool_leaves_no_reward(boxes, caplog):
    broken, sound = boxes(), boxes()
    broken.reset()
    sound.reset()
    with pytest.raises(Exception, match="the box broke"):
        broken.drop()
    with pytest.raises(Exception, match="the box broke"):
        broken.put(item="pen")
    with caplog.at_level(logging.WARNING):
        assert boxes.reward([said("!")] * 2, [broken, sound]) == [None, 0.5]
    assert "1 rollout of 2 failed" in caplog.text
    broken.reset()
    assert boxes.reward([said("")], [broken]) == [0.0]


def test_image_of_a_tool_is_rejected(boxes):
    box = boxes()
    box.reset()
    with pytest.raises(Exception, match="the tool 'photograph' returned content parts"):
        box.photograph()
    assert boxes.reward([said("!")], [box]) == [None]


def test_dead_server_is_restarted(boxes):
    box = boxes()
    box.reset()
    with pytest.raises(Exception, match="explode"):
        box.explode()
    assert boxes.reward([said("!")], [box]) == [None]
    box.reset()
    assert boxes.reward([said("!")], [box]) == [0.5]


def test_row_that_the_server_rejects_is_an_error(boxes):
    with pytest.raises(InvalidTask, match="size"):
        boxes().reset(size="big")


def test_call_before_reset_is_an_error(boxes):
    with pytest.raises(UsageError, match="before reset"):
        boxes().put(item="pen")


def test_environment_of_another_factory_has_no_reward(boxes):
    assert boxes.reward([said("!")], [object()]) == [None]
