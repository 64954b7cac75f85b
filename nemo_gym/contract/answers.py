"""Malformed and extreme model answers that every verifier must be able to grade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nemo_gym.schemas.responses import Response
from nemo_gym.testing import call, reply

HUGE = 300_000
"""The length of a huge answer in characters. It reveals grading whose time grows faster than the answer's length."""
BLANK_LINES = 150_000
"""The number of lines of a blank answer. With `re.MULTILINE`, `^\\s*Answer` takes quadratic time to reject it."""

NO_TOOL = "no_such_tool"
ODD_ARGUMENTS = (
    "", "{", "null", "[]", '"text"', "{}", '{"no_such_argument": 1}', '{"number": 1e999}', '{"half": "\\ud800"}',
    "9" * 5000, "[" * HUGE,
)  # fmt: skip
"""Malformed or unexpected arguments of a tool call."""


def _answer_of(*items: Mapping[str, object]) -> Response:
    return Response.model_validate({**reply().model_dump(), "output": list(items)})


def _message_of(*parts: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "message", "id": "message", "role": "assistant", "status": "completed", "content": list(parts)}


def odd_answers(tool_names: Iterable[str] = ()) -> dict[str, Response]:
    """Return answers that a server must survive, by description. Some call each of the tools with bad arguments."""
    names = [NO_TOOL, *tool_names]
    calls = {
        f"calls with the arguments {arguments[:30]!r}": reply(
            *(call(name).model_copy(update={"arguments": arguments}) for name in names)
        )
        for arguments in ODD_ARGUMENTS
    }
    answers = {
        "no output": _answer_of(),
        "a message without parts": _answer_of(_message_of()),
        "a refusal": _answer_of(_message_of({"type": "refusal", "refusal": "I will not."})),
        "only thoughts": _answer_of({"type": "reasoning", "id": "thoughts", "summary": []}),
        "an output without a call": _answer_of({"type": "function_call_output", "call_id": "none", "output": "{}"}),
        "an item of a hosted tool": _answer_of({"type": "web_search_call", "id": "search", "status": "completed"}),
        "an empty text": reply(""),
        "spaces": reply(" \n\t "),
        "blank lines": reply("\n" * BLANK_LINES),
        "control characters": reply("\x00\x07\u202e"),
        "invalid numbers": reply("NaN inf -inf 1e999"),
        "a huge text": reply("x" * HUGE),
        "a huge number": reply("9" * HUGE),
        "unclosed boxes": reply(r"\boxed{" * (HUGE // 7)),
        "unclosed brackets": reply("[{" * (HUGE // 2)),
        "nested brackets": reply("[" * (HUGE // 2) + "]" * (HUGE // 2)),
        "fences and tags": reply("```json\n<think><answer>" * (HUGE // 23)),
        "an unclosed fence": reply(f"{'~' * HUGE}`"),
        "a letter under thousands of marks": reply(r"\boxed{A" + "\u0301\u0323" * 20_000 + "}"),
    }
    return answers | calls
