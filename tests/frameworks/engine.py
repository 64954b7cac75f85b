"""A chat endpoint in its own process that returns token ids and is as strict as vLLM in a trainer.

A request is rejected with 400 if its sampling parameters are not the trainer's, if its prompt changes tokens that were
sampled earlier, if `top_logprobs` is invalid, or if it exceeds the context.

The policy is deterministic. The first user message lists its turns, one per line (`script`). A turn consists of text
and calls such as `get_weather({"city": "Oslo"})`. The turn `meet NAME 2` waits until two requests are at that turn.
`python tests/frameworks/engine.py` prints its port, then serves until its input ends.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.endpoint.program import serve

PROGRAM = Path(__file__)
MODEL, OLDER_MODEL = "policy", "policy-of-an-older-engine"
"""The older engine does not return token ids, so they are read from the log-probabilities and `/tokenize`."""
TEMPERATURE, TOP_P = 0.9, 0.95
NEUTRAL = {
    "n": 1, "top_k": -1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
    "logit_bias": {},
}  # fmt: skip
"""Sampling parameters that change the policy unless they have these values."""
MAX_MODEL_LEN = 2000
MAX_LOGPROBS = 20
START, END = 1, 2
PAIRS = 2_000_000
MEETING_TIMEOUT_S = 60.0
CALL = re.compile(r"(\w+)\((\{.*?\})\)")
MEETING = re.compile(r"meet (\w+) (\d+)")

JsonDict = dict[str, object]


class Rejected(Exception):
    """A request that vLLM rejects, with the status and the message of its reply."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def script(*turns: str) -> str:
    """Return a user message that makes the policy take these turns."""
    return "\n".join(turn.replace("\n", "\\n") for turn in turns)


def encode(text: str) -> list[int]:
    """Tokenize a text. Two lower-case letters make one token, which the policy never samples.

    A sampled text therefore has other tokens when it is tokenized again, as with real tokenizers.
    """
    pieces = re.findall(r"[a-z]{2}|.", text, re.DOTALL)
    return [PAIRS + ord(one[0]) * 128 + ord(one[1]) if len(one) == 2 else sampled_id(one) for one in pieces]


def sampled_id(character: str) -> int:
    return 10 + ord(character)


def decode(tokens: list[int]) -> str:
    return "".join(
        chr((token - PAIRS) // 128) + chr((token - PAIRS) % 128) if token >= PAIRS else chr(token - 10)
        for token in tokens
        if token not in (START, END)
    )


def log_prob(token: int, position: int) -> float:
    """Return the log-probability of a token at an index of the whole sequence."""
    return -((token * 31 + position * 17) % 997 + 1) / 1000


def text_of(message: JsonDict) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    calls = "".join(f"<call>{call['function']['name']} {call['function']['arguments']}</call>"
                    for call in message.get("tool_calls") or ())  # fmt: skip
    return f"{content}{calls}"


def templated(messages: list[JsonDict], tools: list[JsonDict] | None) -> list[int]:
    """Apply the chat template, without the beginning of the answer."""
    offered = [{"role": "tools", "content": repr(tools)}] if tools else []
    return [
        token
        for message in [*offered, *messages]
        for token in (START, *encode(f"{message['role']}\n{text_of(message)}"), END)
    ]


BEGINNING = [START, *encode("assistant\n")]


@dataclass
class Engine:
    """An engine that remembers the tokens of each conversation so far, by those that the template makes of it."""

    served: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    meetings: defaultdict[str, asyncio.Condition] = field(default_factory=lambda: defaultdict(asyncio.Condition))
    present: Counter[str] = field(default_factory=Counter)

    def prompt_of(self, body: JsonDict) -> list[int]:
        """Return the prompt's tokens, which begin with those sampled earlier. Raise `Rejected` if they cannot."""
        messages, tools = body["messages"], body.get("tools")
        template = templated(messages, tools) + BEGINNING
        last = max((index for index, each in enumerate(messages) if each["role"] == "assistant"), default=None)
        if last is None:
            return template
        so_far = templated(messages[: last + 1], tools)
        required = required_prefix(body)
        if required != self.served.get(tuple(so_far)):
            found = "contain no token ids" if required is None else "contain other token ids"
            raise Rejected(
                f"required_prefix_token_ids: message {last} continues a conversation of which this engine sampled "
                f"{len(self.served.get(tuple(so_far), []))} tokens, but the messages {found}."
            )
        if required is None:
            return template
        # The sampled tokens replace everything before the template's last end of an assistant's turn.
        return required[: -1 if required[-1] == END else None] + template[len(so_far) - 1 :]

    async def meet(self, name: str, number: int) -> None:
        """Wait until `number` requests are at this turn."""
        meeting = self.meetings[name]
        async with asyncio.timeout(MEETING_TIMEOUT_S), meeting:
            self.present[name] += 1
            meeting.notify_all()
            await meeting.wait_for(lambda: self.present[name] >= number)

    def sample(self, body: JsonDict, prompt: list[int], turn: str) -> tuple[JsonDict, list[int], str]:
        """Return the message, its tokens and the finish reason of a turn."""
        calls = [
            {"id": f"call-{len(prompt)}-{number}", "type": "function", "function": {"name": name, "arguments": given}}
            for number, (name, given) in enumerate(CALL.findall(turn))
        ]
        message: JsonDict = {"role": "assistant", "content": CALL.sub("", turn) or None, "tool_calls": calls}
        tokens = [*map(sampled_id, text_of(message)), END]
        limit = min(room_for(body, prompt), len(tokens))
        if limit < len(tokens):
            tokens = tokens[:limit]
            message = {"role": "assistant", "content": decode(tokens), "tool_calls": []}
        conversation = templated([*body["messages"], message], body.get("tools"))
        self.served[tuple(conversation)] = prompt + tokens
        return message, tokens, "length" if tokens[-1] != END else "tool_calls" if calls else "stop"


def required_prefix(body: JsonDict) -> list[int] | None:
    if body.get("required_prefix_token_ids") is not None:
        return body["required_prefix_token_ids"]
    for message in reversed(body["messages"]):
        if "prompt_token_ids" in message:
            return message["prompt_token_ids"] + message["generation_token_ids"]
    return None


def room_for(body: JsonDict, prompt: list[int]) -> int:
    """Return how many tokens the answer may have. Raise `Rejected` if they do not fit into the context."""
    if len(prompt) >= MAX_MODEL_LEN:
        raise Rejected(
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your request has {len(prompt)} "
            "input tokens. Please reduce the length of the input messages."
        )
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or MAX_MODEL_LEN - len(prompt)
    if wanted > MAX_MODEL_LEN - len(prompt):
        raise Rejected(
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length is "
            f"{MAX_MODEL_LEN} tokens and your request has {len(prompt)} input tokens."
        )
    return wanted


def check_sampling(body: JsonDict) -> None:
    for name, configured in {"temperature": TEMPERATURE, "top_p": TOP_P}.items():
        if body.get(name) != configured:
            raise Rejected(f"{name} is {body.get(name)}, but the trainer samples with {configured}.")
    for name, neutral in NEUTRAL.items():
        if body.get(name) not in (None, neutral):
            raise Rejected(f"{name} is {body[name]}, but the trainer samples with {neutral}.")


def check_logprobs(body: JsonDict) -> None:
    wanted = body.get("top_logprobs")
    if wanted is None:
        return
    if wanted < 0:
        raise Rejected("`top_logprobs` must be a positive value.")
    if wanted > 0 and not body.get("logprobs"):
        raise Rejected("when using `top_logprobs`, `logprobs` must be set to true.")
    if wanted > MAX_LOGPROBS:
        raise Rejected(f"Requested sample logprobs of {wanted}, which is greater than max allowed: {MAX_LOGPROBS}")


def logprobs_of(body: JsonDict, prompt: list[int], tokens: list[int]) -> JsonDict | None:
    # As in vLLM, an explicit null as `top_logprobs` removes the log-probabilities.
    if not body.get("logprobs") or body.get("top_logprobs", 0) is None:
        return None
    named = [f"token_id:{token}" if body.get("return_tokens_as_token_ids") else decode([token]) for token in tokens]
    numbers = [log_prob(token, len(prompt) + index) for index, token in enumerate(tokens)]
    pairs = zip(named, numbers, strict=True)
    return {"content": [{"token": token, "logprob": number, "bytes": [], "top_logprobs": []}
                        for token, number in pairs]}  # fmt: skip


def check_model(body: JsonDict) -> None:
    if body["model"] not in (MODEL, OLDER_MODEL):
        raise Rejected(f"The model `{body['model']}` does not exist.", 404)


async def chat_completions(request: Request) -> JSONResponse:
    engine, body = request.app.state.engine, await request.json()
    check_model(body)
    check_sampling(body)
    check_logprobs(body)
    prompt = engine.prompt_of(body)
    turns = text_of(next(each for each in body["messages"] if each["role"] == "user")).splitlines()
    taken = sum(each["role"] == "assistant" for each in body["messages"])
    turn = turns[taken].replace("\\n", "\n") if taken < len(turns) else "Done."
    if meeting := MEETING.search(turn):
        await engine.meet(meeting[1], int(meeting[2]))
    message, tokens, finish_reason = engine.sample(body, prompt, turn)
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "stop_reason": None}
    choice["logprobs"] = logprobs_of(body, prompt, tokens)
    has_ids = body.get("return_token_ids") and body["model"] != OLDER_MODEL
    return JSONResponse(
        {
            "id": f"chatcmpl-{len(engine.served)}",
            "object": "chat.completion",
            "created": 1700000000,
            "model": body["model"],
            "choices": [choice | {"token_ids": tokens} if has_ids else choice],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(tokens),
                "total_tokens": len(prompt) + len(tokens),
            },
            "prompt_logprobs": None,
        }
        | ({"prompt_token_ids": prompt} if has_ids else {})
    )


async def tokenize(request: Request) -> JSONResponse:
    body = await request.json()
    check_model(body)
    tokens = request.app.state.engine.prompt_of(body)
    return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": MAX_MODEL_LEN})


async def models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in (MODEL, OLDER_MODEL)]})


async def rejection(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Rejected)
    kind = "BadRequestError" if error.status == 400 else "NotFoundError"
    described = {"message": str(error), "type": kind, "param": None, "code": error.status}
    return JSONResponse({"error": described}, error.status)


def make_app() -> Starlette:
    """Return an engine that has not sampled anything."""
    app = Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/tokenize", tokenize, methods=["POST"]),
        ],
        exception_handlers={Rejected: rejection},
    )
    app.state.engine = Engine()
    return app


if __name__ == "__main__":
    serve(make_app())
