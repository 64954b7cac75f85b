"""The agent for conversations between a policy and a simulated user.

The two take turns until the user is satisfied or a limit is reached.
"""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from fastapi import FastAPI, Request, Response
from pydantic import AfterValidator, ConfigDict, Field

from nemo_gym import (
    AgentFailed,
    BaseRunRequest,
    Conversation,
    ConversingAgent,
    ConversingAgentConfig,
    DataError,
    ModelServerRef,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.grading import PromptFile, read_prompt
from nemo_gym.jsonl import JsonObject
from responses_api_agents.user_simulation_agent.dialogue import Line, dialogue_of
from responses_api_agents.user_simulation_agent.languages import check_visible
from responses_api_agents.user_simulation_agent.user_model import UserModel, instructions_for
from responses_api_agents.user_simulation_agent.users import ScriptedUser, SimulatedUser, UserProfile

End = Literal["goal_met", "max_user_turns", "max_steps", "cut_off"]


class UserSimulationAgentConfig(ConversingAgentConfig):
    max_steps: int = Field(default=200, ge=1)
    """The maximum number of turns of the policy."""
    max_user_turns: int = Field(default=10, ge=1)
    """The maximum number of turns of the user. Messages in the row's input do not count."""
    user_model_server: ModelServerRef | None = None
    """The model that plays the user. If it is not set, the user follows the script and the answers of the row."""
    trains_user: bool = False
    """Whether the result has the user's turns as the role `user`, for a trainer. The environment grades it in
    `role_rewards` of the reply to `/verify`: `{user: 1.0}`."""
    user_prompt: PromptFile = Field(default=Path("prompts/user.md"), validate_default=True)
    """A template with `{persona}`, `{goal}`, `{facts}`, `{script}` and `{stop_marker}`; double any other braces."""
    user_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default=NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Request parameters of the user's model; `input` is replaced by the dialogue."""
    stop_marker: Annotated[str, AfterValidator(check_visible)] = "###STOP###"
    """The text with which the user's model ends the conversation. Full-width forms of this text count, too."""


class UserSimulationRunRequest(BaseRunRequest):
    """A dataset row that describes its simulated user."""

    model_config = ConfigDict(extra="allow")

    user: UserProfile


class Reaction(NamedTuple):
    """The reaction to an answer of the policy: the user's words, and the reason if the conversation ends."""

    end: End | None
    words: str = ""


class UserSimulationAgent(ConversingAgent):
    """An agent in which a policy talks to a simulated user. The policy may call tools before each of its answers."""

    config: UserSimulationAgentConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app. Check the user prompt first, so that an error is reported at startup."""
        self._instructions_for(UserProfile())
        return super().setup_webserver()

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Return the policy's next answer, after its tool calls. For a rollout with a user, use `/run` with a row."""
        params = body.model_dump(mode="json", exclude_unset=True)
        path = self.url_path_for_request("/v1/responses", request)
        conversation = await self.begin(params, dict(request.cookies), path)
        await self.answer(conversation)
        for name, value in conversation.session.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(conversation.plain_response())

    async def run(self, request: Request, body: UserSimulationRunRequest) -> Response:
        """Run one rollout from its row to its reward and return the verifier's reply."""
        return await super().run(request, body)

    async def converse(
        self, request: Request, body: UserSimulationRunRequest, row: JsonObject, session: dict[str, str]
    ) -> Conversation:
        """Alternate between policy and user. The user begins unless the row's input ends with a user message."""
        user = self._user(body.user)
        conversation = await self.begin(row["responses_create_params"], session)
        user_turns = await self._open(conversation, user)
        while True:
            await self.answer(conversation)
            reaction = await self._react(conversation, user, user_turns)
            if reaction.end is not None:
                break
            conversation.hear(reaction.words)
            user_turns += 1
        conversation.added = {
            "ended_by": reaction.end,
            "user_turns": user_turns,
            "user_last_words": reaction.words,
            "user_usage": user.usage.model_dump(mode="json") if user.usage else None,
            "user_model": user.model,
            **({"roles": {"user": role}} if self.config.trains_user and (role := user.role) else {}),
        }
        return conversation

    async def _open(self, conversation: Conversation, user: SimulatedUser) -> int:
        """Add the user's first message unless the input ends with a user message. Return how many turns were added."""
        given = _dialogue(conversation)
        if given and given[-1].speaker == "user":
            return 0
        words = (await user.speak(given)).text
        if not words:
            raise AgentFailed(
                f"{self.config.name}: the first message of the simulated user is empty. Check the row's user, "
                "and the user_prompt if a model plays the user"
            )
        conversation.hear(words)
        return 1

    async def _react(self, conversation: Conversation, user: SimulatedUser, user_turns: int) -> Reaction:
        """Return the user's reaction. The user is not asked if the policy was truncated or reached `max_steps`."""
        if conversation.was_cut_off:
            return Reaction("cut_off")
        if self.is_out_of_steps(conversation):
            return Reaction("max_steps")
        said = await user.speak(_heard_last(_dialogue(conversation)))
        if said.is_satisfied:
            return Reaction("goal_met", said.text)
        return Reaction("max_user_turns" if user_turns == self.config.max_user_turns else None, said.text)

    def _user(self, profile: UserProfile) -> SimulatedUser:
        if self.config.user_model_server is None:
            return ScriptedUser(profile)
        return UserModel(
            self.server_client,
            self.config.user_model_server.name,
            instructions=self._instructions_for(profile),
            params=self.config.user_responses_create_params.model_dump(mode="json", exclude_unset=True),
            stop_marker=self.config.stop_marker,
        )

    def _instructions_for(self, profile: UserProfile) -> str:
        try:
            return instructions_for(self._template, profile, self.config.stop_marker)
        except KeyError as error:
            raise DataError(
                f"{self.config.user_prompt}: unknown field {error}. Use persona, goal, facts, script or stop_marker."
            ) from error

    @cached_property
    def _template(self) -> str:
        return read_prompt(self.config.user_prompt)


def _dialogue(conversation: Conversation) -> list[Line]:
    return dialogue_of(conversation.params["input"], conversation.said)


def _heard_last(dialogue: list[Line]) -> list[Line]:
    """Return the dialogue. If the assistant's last turn is empty, add an empty line for it."""
    return dialogue if dialogue[-1].speaker == "assistant" else [*dialogue, Line("assistant", "")]


if __name__ == "__main__":
    UserSimulationAgent.run_webserver()
