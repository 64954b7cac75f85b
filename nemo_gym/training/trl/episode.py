"""One of TRL's rollouts on a resources server: its session, its tool calls and its reward."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import orjson

from nemo_gym.calls.client import ServerClient, get_response_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.calls.problems import reply_to
from nemo_gym.context.deadline import deadline_in
from nemo_gym.dialects.chat import new_id
from nemo_gym.dialects.chat_history import items_of_messages
from nemo_gym.errors import EnvironmentFailed, RolloutError, ServerCallError
from nemo_gym.http.reply import Reply
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.row import Row
from nemo_gym.schemas.shapes import Item, MessageJson, ToolCall, ToolDefinition
from nemo_gym.servers.conversation import Conversation

Completion = str | Sequence[MessageJson]
"""The policy's part of a conversation in TRL: a string, or chat messages with the results of tool calls."""


class Episode:
    """A rollout from `/seed_session` to `/verify`. If a call fails, the rollout has no reward."""

    def __init__(
        self,
        client: ServerClient,
        server: str,
        row: Mapping[str, object],
        tools: list[ToolDefinition],
        call_timeout_s: float,
    ) -> None:
        self._client = client
        self._server = server
        self._row = row
        self._conversation = Conversation({"tools": tools})
        self._conversation.response = {"output": []}
        self._call_timeout_s = call_timeout_s
        self._calls = 0
        self._graded: Row | None = None
        self.failure: RolloutError | None = None

    async def seed(self) -> None:
        """Begin the session. Raise `RolloutError` if the server cannot begin it."""
        reply = await self._post("/seed_session", self._row)
        self._conversation.session = hooks().cookies(reply)

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool and return its output for the model. Raise `RolloutError` if this or an earlier call failed."""
        if self.failure is not None:
            raise self.failure
        self._calls += 1
        written = orjson.dumps(arguments).decode()
        call: Item = {"name": name, "arguments": written, "call_id": f"call_{self._calls}"}
        try:
            with deadline_in(self._call_timeout_s):
                await self._conversation.act(self._client, self._server, [call], tells_faults=False)
        except RolloutError as error:
            self.failure = error
            raise
        output = self._conversation.said[-1]["output"]
        if not isinstance(output, str):
            self.failure = EnvironmentFailed(
                f"{self._server}: the tool '{name}' returned content parts, such as an image, but TRL takes only "
                "text from tools. Leave this tool out, or train on collected rollouts.",
                server=self._server,
            )
            raise self.failure
        return output

    async def verify(self, completion: Completion) -> float | None:
        """Return the reward of a completion; None after a failure, or if the verifier masks the rollout.

        The server grades an episode once. Later calls return the same reward.
        """
        if self._graded is None and self.failure is None:
            try:
                response = response_of(completion, self._conversation.params["tools"])
                reply = await self._post("/verify", {**self._row, "response": response.model_dump(mode="json")})
                self._graded = Row(await get_response_json(reply))
            except RolloutError as error:
                self.failure = error
        return None if self._graded is None or self._graded.is_masked else self._graded.reward

    async def close(self) -> None:
        """End the session, unless grading has ended it."""
        if self._graded is None:
            # Ignore failures, because the server removes idle sessions itself.
            with suppress(ServerCallError, RolloutError):
                await self._post("/close_session", {})

    async def _post(self, path: str, body: Mapping[str, object]) -> Reply:
        with deadline_in(self._call_timeout_s):
            call = self._client.post(self._server, path, json=body, cookies=self._conversation.session)
            reply: Reply = await reply_to(call, server=self._server, during=path, otherwise=EnvironmentFailed)
            return reply


def response_of(completion: Completion, tools: list[ToolDefinition]) -> Response:
    """Return the response for the verifier: the messages, calls and results of a completion."""
    said: MessageJson = {"role": "assistant", "content": completion}
    given = [said] if isinstance(completion, str) else completion
    messages: list[MessageJson] = []
    unanswered: list[str] = []
    for message in given:
        if message["role"] == "tool":
            # Match tool results with calls by their order, because TRL's results name the tool, but not the call.
            messages.append({**message, "tool_call_id": unanswered.pop(0)})
            continue
        calls = [_with_id(call) for call in message.get("tool_calls") or []]
        unanswered = [call["id"] for call in calls]
        messages.append({**message, "tool_calls": calls})
    output = items_of_messages(messages, new_id=new_id, keeps_tokens=False)
    return Response(id=new_id("resp"), created_at=int(time.time()), model="trl", tools=tools, output=list(output))


def _with_id(call: ToolCall) -> ToolCall:
    function = call["function"]
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"id": new_id("call"), "type": "function", "function": {"name": function["name"], "arguments": written}}
