"""The transcript of a game: the model's turns, the outputs of its calls, and the observations."""

from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym import (
    BaseStepResponse,
    ModelFailed,
    NeMoGymResponse,
    ServerClient,
    accumulate_response_usage,
    keep_if_failed,
    reply_to,
)
from nemo_gym.jsonl import JsonObject

UNANSWERED = "The environment has not answered this call."
"""The output of a tool call that the environment did not answer. Model endpoints reject a call without an output."""


@dataclass
class Transcript:
    """The conversation of a game, to which the model's turns and the results of steps are added."""

    params: JsonObject
    given: list[JsonObject]
    """The input up to the model's first turn."""
    begins_with_observation: bool = False
    """Whether the input has an observation that the row lacks."""
    output: list[JsonObject] = field(default_factory=list)
    """All items after the input: the model's turns, the outputs of calls, and observations."""
    _cookies: dict[str, str] = field(default_factory=dict)
    _last: JsonObject = field(default_factory=dict)
    usage: Any = None
    """The tokens of all turns; None if the endpoint does not report them."""

    def __post_init__(self) -> None:
        keep_if_failed(lambda: self.output)

    @classmethod
    def of(cls, params: JsonObject) -> "Transcript":
        """Return a transcript with the row's input."""
        given = params["input"]
        return cls(params, [_user(given)] if isinstance(given, str) else list(given))

    def observe(self, observation: str | None) -> None:
        """Add an observation, if there is one."""
        if observation is None:
            return
        self.begins_with_observation |= not self.output
        (self.output or self.given).append(_user(observation))

    async def ask(self, client: ServerClient, model: str, path: str = "/v1/responses") -> JsonObject:
        """Let the model take a turn and return its response. Raise `ModelFailed` if the call fails."""
        request = {**self.params, "input": [*self.given, *self.output]}
        call = client.post(model, path, json=request, cookies=self._cookies)
        reply = await reply_to(call, server=model, during=path, otherwise=ModelFailed)
        body = await reply.read()
        self._cookies |= reply.cookie_values
        try:
            turn: JsonObject = orjson.loads(body)
            checked = NeMoGymResponse.model_validate(turn)
        except (orjson.JSONDecodeError, ValidationError) as error:
            raise ModelFailed(f"{model}: the reply is not a valid response: {error}", server=model) from error
        self.usage = accumulate_response_usage(self.usage, checked.usage)
        self._last = turn
        self.output += turn["output"]
        return turn

    def answer_calls(self, step: BaseStepResponse) -> None:
        """Add the environment's outputs of the last turn's calls, except for calls that an agent has answered."""
        answers = {each["call_id"]: each["output"] for each in step.info.get("tool_outputs") or []}
        items = self._last["output"]
        answered = {item["call_id"] for item in items if item["type"] == "function_call_output"}
        self.output += [
            {"type": "function_call_output", "call_id": each, "output": _text(answers.get(each, UNANSWERED))}
            for each in (item["call_id"] for item in items if item["type"] == "function_call")
            if each not in answered
        ]

    @property
    def response(self) -> JsonObject:
        """The last turn's response, with the output of the whole game and the usage of all turns."""
        usage = self.usage.model_dump(mode="json") if self.usage else None
        return {**self._last, "output": self.output, "usage": usage}

    @property
    def played(self) -> JsonObject:
        """The fields of the result: the response, and the input that the model got if it differs from the row's."""
        asked = {"responses_create_params": {**self.params, "input": self.given}}
        return {"response": self.response, **(asked if self.begins_with_observation else {})}


def _user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": text}


def _text(output: object) -> object:
    return output if isinstance(output, (str, list)) else orjson.dumps(output).decode()
