"""Play a given attempt on an in-process server: make its tool calls, and grade the attempt with their outputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nemo_gym.contract.environment import Solution
from nemo_gym.schemas.items import FunctionCallOutput, FunctionToolCall
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.rollout import Graded
from nemo_gym.servers.base import SimpleServer
from nemo_gym.testing import Attempt, reply, rollout


class Played(NamedTuple):
    """A graded attempt and its grading time in seconds."""

    graded: Graded
    verify_s: float

    @property
    def reward(self) -> float:
        return self.graded.reward


async def play(
    server: SimpleServer, row: Mapping[str, object], items: Solution, rivals: Sequence[Response] = ()
) -> Played:
    """Seed a session, make the tool calls in `items`, and grade the attempt in a group with its `rivals`, if any."""
    async with rollout(server, **row) as attempt:
        return await grade(attempt, await act(attempt, items), rivals)


async def grade_alone(
    server: SimpleServer, row: Mapping[str, object], response: Response, rivals: Sequence[Response] = ()
) -> Played:
    """Seed a session, and grade a response in it without making its tool calls."""
    async with rollout(server, **row) as attempt:
        return await grade(attempt, response, rivals)


async def grade(attempt: Attempt, response: Response, rivals: Sequence[Response] = ()) -> Played:
    """Grade a response in the attempt's session."""
    started_at = time.perf_counter()
    graded = await attempt.verify(response, compared_with=rivals)
    return Played(graded, time.perf_counter() - started_at)


async def act(attempt: Attempt, items: Solution) -> Response:
    """Make the tool calls among the items. Return all items as a response, with each tool's output after its call."""
    response = reply(*_with_ids(items))
    output: list[object] = []
    for item in response.output:
        output.append(item)
        if isinstance(item, FunctionToolCall):
            # A call in this process may never pause, and many quick ones would look like one that blocks.
            await asyncio.sleep(0)
            answer = await attempt.send(item)
            output.append(FunctionCallOutput(call_id=item.call_id, output=answer))
    return response.model_copy(update={"output": output})


def _with_ids(items: Solution) -> Solution:
    """Give each call its own id, so that the outputs of two calls are not confused."""
    return [
        item.model_copy(update={"call_id": f"{item.call_id}_{number}"}) if isinstance(item, FunctionToolCall) else item
        for number, item in enumerate(items)
    ]
