"""A user whose words a second model finds: told who it is and what it wants, and that it stops when it has it."""

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
from responses_api_agents.user_simulation_agent.dialogue import Line
from responses_api_agents.user_simulation_agent.users import Said, UserProfile

GREETING = "Hello! What can I do for you?"
"""Stands before the user's first words: many endpoints want a conversation to begin with the other side."""
SILENCE = "(The assistant says nothing.)"


class UserModel:
    """Seen from its model, the user is the one that answers, and the assistant the one that writes to it."""

    def __init__(
        self, client: ServerClient, server: str, *, instructions: str, params: dict[str, Any], stop_marker: str
    ) -> None:
        self.usage: Any = None
        self._client = client
        self._server = server
        self._instructions = instructions
        self._params = params
        self._stop_marker = stop_marker
        self._cookies: dict[str, str] = {}

    async def speak(self, dialogue: list[Line]) -> Said:
        """The user's next turn. Raises `ModelFailed`, with the user model's name, where it has no whole one."""
        said = strip_reasoning((await self._answer(self._request(dialogue))).last_text)
        text, marker, _ = said.partition(self._stop_marker)
        if not said:
            raise self._failure("it said nothing, or thought without an end")
        return Said(text.strip(), is_satisfied=bool(marker))

    def _request(self, dialogue: list[Line]) -> dict[str, Any]:
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

    async def _answer(self, request: dict[str, Any]) -> NeMoGymResponse:
        try:
            reply = await self._client.post(self._server, "/v1/responses", json=request, cookies=self._cookies)
        except ServerCallError as error:
            whose = f"the simulated user '{self._server}'"
            raise failure_of_call(error, server=self._server, otherwise=ModelFailed, during=whose) from error
        body = await reply.read()
        if not reply.ok:
            cause = failure_of_reply(
                reply.status, body, server=self._server, during="/v1/responses", otherwise=ModelFailed
            )
            raise self._failure(str(cause)) from cause
        self._cookies |= {name: morsel.coded_value for name, morsel in reply.cookies.items()}
        try:
            response = NeMoGymResponse.model_validate_json(body)
        except ValidationError as error:
            raise self._failure(f"the answer is not a response: {error}") from error
        self.usage = accumulate_response_usage(self.usage, response.usage)
        if response.incomplete_details is not None:
            # Half a sentence may lack the very words that end the conversation.
            raise self._failure(f"its answer was cut off ({response.incomplete_details.reason})")
        return response

    def _failure(self, cause: str) -> ModelFailed:
        return ModelFailed(f"the simulated user '{self._server}': {cause}", server=self._server)


def instructions_for(template: str, profile: UserProfile, stop_marker: str) -> str:
    """The prompt of a user: `{persona}`, `{goal}`, `{facts}`, `{script}` and `{stop_marker}` filled in.

    Raises `KeyError` where the prompt asks for anything else.
    """
    return template.format_map(
        {
            "persona": profile.persona or "an ordinary person",
            "goal": profile.goal or "told by what you have to say",
            "facts": "\n".join(f"- {name}: {value}" for name, value in profile.facts.items()) or "- nothing more",
            "script": "\n".join(f"{number}. {line}" for number, line in enumerate(profile.script, start=1))
            or "Nothing in particular.",
            "stop_marker": stop_marker,
        }
    )
