"""A simulated user that is played by a model."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from nemo_gym import (
    ModelFailed,
    NeMoGymResponse,
    ServerCallError,
    ServerClient,
    accumulate_response_usage,
    failure_of_call,
    failure_of_reply,
)
from nemo_gym.grading import strip_reasoning
from nemo_gym.jsonl import JsonObject, loads_exact
from responses_api_agents.user_simulation_agent.dialogue import Line
from responses_api_agents.user_simulation_agent.languages import before
from responses_api_agents.user_simulation_agent.users import Said, UserProfile

GREETING = "Hello! What can I do for you?"
"""The assistant's greeting before the user's first message. Many endpoints require a message to respond to."""
PATH = "/v1/responses"
SILENCE = "(The assistant says nothing.)"


class UserModel:
    """A user played by a model. In the model's requests, the roles of user and assistant are swapped."""

    def __init__(
        self, client: ServerClient, server: str, *, instructions: str, params: JsonObject, stop_marker: str
    ) -> None:
        self.usage: Any = None
        self.model: str | None = None
        """The model's name in the latest response; None before the first response."""
        self._turns: list[tuple[JsonObject, bytes]] = []
        """Each request with its response."""
        self._client = client
        self._server = server
        self._instructions = instructions
        self._params = params
        self._stop_marker = stop_marker
        self._cookies: dict[str, str] = {}

    async def speak(self, dialogue: list[Line]) -> Said:
        """Return the user's next turn. Raise `ModelFailed` if the model's reply is missing, invalid or truncated."""
        said = strip_reasoning((await self._answer(self._request(dialogue))).last_text)
        if not said:
            raise self._failure("the model's answer is empty, or contains only reasoning")
        farewell = before(self._stop_marker, said)
        return Said(said, is_satisfied=False) if farewell is None else Said(farewell.strip(), is_satisfied=True)

    def _request(self, dialogue: list[Line]) -> JsonObject:
        messages = [{"role": "system", "content": self._instructions}]
        if not dialogue or dialogue[0].speaker == "user":
            messages.append({"role": "user", "content": GREETING})
        messages += [
            {"role": "user", "content": line.text or SILENCE}
            if line.speaker == "assistant"
            else {"role": "assistant", "content": line.text}
            for line in dialogue
        ]
        return {**self._params, "input": messages}

    async def _answer(self, request: JsonObject) -> NeMoGymResponse:
        try:
            reply = await self._client.post(self._server, PATH, json=request, cookies=self._cookies)
        except ServerCallError as error:
            whose = f"the simulated user '{self._server}'"
            raise failure_of_call(error, server=self._server, otherwise=ModelFailed, during=whose) from error
        body = await reply.read()
        if not reply.ok:
            cause = failure_of_reply(reply.status, body, server=self._server, during=PATH, otherwise=ModelFailed)
            raise self._failure(str(cause)) from cause
        self._cookies |= reply.cookie_values
        try:
            response = NeMoGymResponse.model_validate_json(body)
        except ValidationError as error:
            raise self._failure(f"the model's reply is not a valid response: {error}") from error
        self._turns.append((request, body))
        self.usage = accumulate_response_usage(self.usage, response.usage)
        self.model = response.model
        if response.incomplete_details is not None:
            # Reject a truncated answer, because it may lack the stop marker.
            raise self._failure(f"the model's answer was cut off ({response.incomplete_details.reason})")
        return response

    @property
    def role(self) -> JsonObject | None:
        """The parameters of the first request, and the latest response with the output of all of them."""
        responses: list[JsonObject] = [loads_exact(body) for _, body in self._turns]
        if not responses:
            return None
        output = [item for response in responses for item in response["output"]]
        return {"responses_create_params": self._turns[0][0], "response": {**responses[-1], "output": output}}

    def _failure(self, cause: str) -> ModelFailed:
        return ModelFailed(f"the simulated user '{self._server}': {cause}", server=self._server)


def instructions_for(template: str, profile: UserProfile, stop_marker: str) -> str:
    """Return a user's instructions: the template with its fields replaced. Raise `KeyError` for an unknown field."""
    return template.format_map(
        {
            "persona": profile.persona or "an ordinary person",
            "goal": profile.goal or "given by the points below",
            "facts": "\n".join(f"- {name}: {value}" for name, value in profile.facts.items()) or "- nothing more",
            "script": "\n".join(f"{number}. {line}" for number, line in enumerate(profile.script, start=1))
            or "Nothing in particular.",
            "stop_marker": stop_marker,
        }
    )
