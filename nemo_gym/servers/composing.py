"""Base class of agents that let another agent answer, for example several times, or again after a critique."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from pydantic import ValidationError, model_validator

from nemo_gym.calls.client import get_response_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import reply_to
from nemo_gym.config.settings import AgentServerRef
from nemo_gym.context.deadline import to_the_end
from nemo_gym.errors import AgentFailed, ModelFailed, RolloutError
from nemo_gym.grading.answers import is_claimed
from nemo_gym.grading.text import strip_reasoning
from nemo_gym.schemas.items import (
    EasyInputMessage,
    FunctionCallOutput,
    FunctionToolCall,
    InputPart,
    InputText,
    Message,
    assistant_texts,
)
from nemo_gym.schemas.responses import RESPONSES_PATH, Response
from nemo_gym.servers.conversation import Cookies
from nemo_gym.servers.conversing import ConversingAgent, ConversingAgentConfig, call_environment, close_session

CLAIMED = " (claimed by the program)"
OF_THE_LOOP = ("max_steps", "tool_faults")


class ComposingAgentConfig(ConversingAgentConfig):
    """Settings of a composing agent: the other agent, the resources server and the model server."""

    agent_server: AgentServerRef
    """The agent that answers, as `{type: responses_api_agents, name: …}`. Only its `/v1/responses` is called.

    That agent's `resources_server` must be the same as in this block."""

    @model_validator(mode="after")
    def _limits_belong_to_the_loop(self) -> ComposingAgentConfig:
        for name in OF_THE_LOOP:
            if name in self.model_fields_set:
                raise ValueError(
                    f"{name} cannot be set here. Set it in the block of '{self.agent_server.name}', "
                    "which runs the loop"
                )
        return self


class ComposingAgent(ConversingAgent):
    """Base class of agents that use another agent's loop of model and tools. Implement `converse` and `responses`."""

    config: ComposingAgentConfig

    async def answer_of_agent(
        self, params: Mapping[str, object], session: Cookies, path: str | None = None
    ) -> Response:
        """Let the other agent answer a conversation. `session` has the environment's cookies and is updated in place.

        `path` is the path of the other agent's `/v1/responses`. The default has the current rollout's
        prefix if calls are captured.
        """
        path = path or self.url_path_for_run(RESPONSES_PATH, None)
        return await self._response_of(self.config.agent_server.name, path, params, session, AgentFailed)

    async def answer_of_model(self, text: str, params: Mapping[str, object]) -> Response:
        """Ask this agent's own model a question. The call is not part of the rollout's conversation."""
        asked = {**params, "input": [{"role": "user", "content": text}]}
        return await self._response_of(self.config.model_server.name, RESPONSES_PATH, asked, {}, ModelFailed)

    async def seed_another_session(self, row: Mapping[str, object]) -> Cookies:
        """Seed a further session of the environment with the rollout's row, and return the session's cookies."""
        return hooks().cookies(await call_environment(self, "/seed_session", row, {}))

    async def close_sessions(self, sessions: Iterable[Cookies]) -> None:
        """Close sessions of the environment, even if this task is cancelled."""

        async def close_all() -> None:
            await asyncio.gather(*(close_session(self, session) for session in sessions))

        await to_the_end(close_all())

    async def _response_of(
        self, server: str, path: str, params: Mapping[str, object], cookies: Cookies, otherwise: type[RolloutError]
    ) -> Response:
        call = self.server_client.post(server, path, json=params, cookies=cookies)
        reply = await reply_to(call, server=server, during=RESPONSES_PATH, otherwise=otherwise)
        answer = await get_response_json(reply)
        cookies |= hooks().cookies(reply)
        try:
            return Response.model_validate(answer)
        except ValidationError as error:
            reason = f"{server}: the answer of {RESPONSES_PATH} is not a response: {error}"
            raise otherwise(reason, server=server) from error


def transcript_of(response: Response) -> str:
    """Return a response as text for a model: its messages, tool calls and tool outputs, without reasoning."""
    lines: list[str] = []
    for item in response.output:
        if texts := assistant_texts([item]):
            lines += [f"assistant: {strip_reasoning(text)}" for text in texts]
        elif isinstance(item, EasyInputMessage | Message):
            claim = CLAIMED if is_claimed(item) else ""
            lines.append(f"{item.role}{claim}: {_text_of(item.content)}")
        elif isinstance(item, FunctionToolCall):
            lines.append(f"tool call: {item.name}({item.arguments})")
        elif isinstance(item, FunctionCallOutput):
            lines.append(f"tool output{CLAIMED if is_claimed(item) else ''}: {item.output}")
    return "\n".join(lines)


def _text_of(content: str | list[InputPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, InputText))
