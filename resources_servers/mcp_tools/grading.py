"""Compare a response with the expected answer and the expected tool calls of its row."""

from typing import Any

import orjson
from pydantic import BaseModel, Field

from nemo_gym import NeMoGymResponse
from nemo_gym.grading import AnswerText, final_answer, same_number, same_text, unwrapped

FAILED = ("Error: ", "Invalid arguments for ", "Unknown tool ", '{"error":"Invalid tool call arguments')
"""The beginnings of the outputs of calls without an effect."""


class ExpectedCall(BaseModel):
    """A call that the model must make."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Expected(BaseModel):
    """The part of a row that decides the reward."""

    expected_answer: AnswerText | None = Field(default=None, pattern=r"\S")
    expected_calls: list[ExpectedCall] | None = Field(default=None, min_length=1)


def has_answer(response: NeMoGymResponse, expected: str) -> bool:
    """Return whether the final answer is the expected text, in any case, or the same number."""
    answer = final_answer(response.answer_text)
    if not answer:
        return False
    is_same = same_text(expected, answer, keeps_case=False)
    return is_same or same_number(unwrapped(expected), unwrapped(answer)) is True


def makes_calls(response: NeMoGymResponse, expected: list[ExpectedCall]) -> bool:
    """Return whether the model made exactly the expected calls of the tools that they name, in any order.

    Calls of other tools are allowed, because most of them only read. Calls that the tool rejected do not count.
    """
    outputs = {item.call_id: item.output for item in response.output if item.type == "function_call_output"}
    wanted = [(each.name, each.arguments) for each in expected]
    names = {name for name, _ in wanted}
    made = [
        (call.name, orjson.loads(call.arguments or "{}"))
        for call in response.tool_calls
        if call.name in names and not str(outputs.get(call.call_id, FAILED[0])).startswith(FAILED)
    ]
    return len(made) == len(wanted) and all(made.count(each) == wanted.count(each) for each in wanted)
