"""Play a given attempt on a server in process: its calls are really made, its texts are said, then it is graded."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from nemo_gym.contract.environment import Row, Solution
from nemo_gym.schemas.items import FunctionCallOutput, FunctionToolCall
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.rollout import Graded
from nemo_gym.servers.base import SimpleServer
from nemo_gym.testing import Attempt, reply, rollout


class Played(NamedTuple):
    """A graded attempt, and what grading it took."""

    graded: Graded
    verify_s: float

    @property
    def reward(self) -> float:
        """What it earned."""
        return self.graded.reward


async def play(server: SimpleServer, row: Row, items: Solution) -> Played:
    """Seed a session, make the calls in order, and have everything graded together."""
    async with rollout(server, **row) as attempt:
        return await grade(attempt, await act(attempt, items))


async def grade(attempt: Attempt, response: Response) -> Played:
    """Have a response graded in the attempt's session."""
    started_at = time.perf_counter()
    graded = await attempt.verify(response)
    return Played(graded, time.perf_counter() - started_at)


async def act(attempt: Attempt, items: Solution) -> Response:
    """Make the calls among the items, and tell the whole as a response, the tools' answers among its output."""
    response = reply(*_with_ids(items))
    output: list[Any] = []
    for item in response.output:
        output.append(item)
        if isinstance(item, FunctionToolCall):
            answer = await attempt.send(item)
            output.append(FunctionCallOutput(call_id=item.call_id, output=answer))
    return response.model_copy(update={"output": output})


def _with_ids(items: Solution) -> Solution:
    """Two calls of one tool are told apart by their ids."""
    return [
        item.model_copy(update={"call_id": f"{item.call_id}_{number}"}) if isinstance(item, FunctionToolCall) else item
        for number, item in enumerate(items)
    ]
