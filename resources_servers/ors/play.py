"""One rollout's session on an ORS server: its prompt, its tool calls and their rewards."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from nemo_gym import EnvironmentFailed, InvalidTask, Overloaded, RolloutError, SessionState
from resources_servers.ors.client import Json, Ors, Refused

logger = logging.getLogger(__name__)

GONE = (404, 410)
INVALID = (400, 422)
CLOSING_S = 10.0
LONGEST = 1000
OVER = "The task is over. No further call has an effect."
NO_ARGUMENTS: Json = {"type": "object", "properties": {}}


class OrsTask(BaseModel):
    """A row's task: the place in the server's own list, or the task itself."""

    split: str | None = None
    index: int | None = None
    task_spec: Json | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> OrsTask:
        if (self.task_spec is None) != (self.split is not None and self.index is not None):
            raise ValueError("set either split and index, or task_spec")
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, written: SerializerFunctionWrapHandler) -> Json:
        """Leave out the source that is not set, because a graded row repeats its task."""
        return {name: value for name, value in written(self).items() if value is not None}


class Text(BaseModel):
    type: Literal["text"]
    text: str


class Image(BaseModel):
    type: Literal["image"]
    data: str
    mimeType: str  # noqa: N815 - the protocol's name


Blocks = list[Annotated[Text | Image, Field(discriminator="type")]]


class Output(BaseModel):
    """A tool's result."""

    blocks: Blocks = Field(default_factory=list)
    reward: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    finished: bool = False


class Result(BaseModel):
    """A tool's result, or the reason why the model's call could not be run."""

    ok: bool
    output: Output = Field(default_factory=Output)
    error: str = ""
    reason: str | None = None


class ToolSpec(BaseModel):
    name: str
    description: str = ""
    input_schema: Json | None = None


class TerminalTool(BaseModel):
    """The tool that receives the model's last message. The model does not see it."""

    name: str
    arg: str | None = None


class ToolList(BaseModel):
    tools: list[ToolSpec]
    terminal_tool: TerminalTool | None = None


class Play(SessionState):
    """A session on an ORS server. `close` ends it there."""

    ors: Ors | None = None
    sid: str = ""
    tools: ToolList = ToolList(tools=[])
    prompt: Blocks = Field(default_factory=list)
    rewards: list[float] = Field(default_factory=list)
    calls: int = 0
    is_over: bool = False
    """Whether a tool has reported `finished`."""
    failure: RolloutError | None = None
    """The failure after which the session's reward is unknown."""
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)
    keeping_alive: asyncio.Task[None] | None = None

    async def begin(self, ors: Ors, task: OrsTask, ping_s: float) -> None:
        """Create the session for a task, and read its prompt and tools.

        Raises `InvalidTask` if the server rejects the task, and the errors of `Ors.json`.
        """
        await ors.open()
        setup_s = ors.settings.setup_timeout_s
        self.sid = (await ors.stream("/create_session", within_s=setup_s)).task_id
        if not self.sid or self.sid in ors.sessions:
            self.sid = ""
            raise EnvironmentFailed("POST /create_session: the server gave no session id, or one that is in use")
        ors.sessions.add(self.sid)
        self.ors = ors
        try:
            await ors.create(self.sid, task.model_dump())
        except Refused as error:
            if error.code not in INVALID:
                raise
            raise InvalidTask(f"{error}. The server rejects the row's task ({task})"[:LONGEST]) from error
        self.keeping_alive = asyncio.create_task(self._keep_alive(ors, ping_s))
        self.prompt = await ors.json(Blocks, "GET", f"/{ors.env}/prompt", self.sid, within_s=setup_s)
        try:
            self.tools = await ors.json(ToolList, "GET", f"/{ors.env}/task_tools", self.sid, within_s=setup_s)
        except Refused as error:
            if error.code not in GONE:
                raise
            self.tools = await ors.json(ToolList, "GET", f"/{ors.env}/tools", self.sid)

    @property
    def definitions(self) -> list[Json]:
        """The tools in the format of a model request."""
        return [
            {"type": "function", "name": each.name, "description": each.description, "strict": False}
            | {"parameters": each.input_schema or NO_ARGUMENTS}
            for each in self.tools.tools
        ]

    async def call(self, name: str, arguments: str) -> str | list[Json]:
        """Call a tool, after any earlier call has ended. Return its output for the model.

        Raises `EnvironmentFailed` or `Overloaded` if the call failed, and the same error for every later call.
        """
        try:
            given = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError as error:
            return f"Invalid arguments for {name}: not valid JSON ({error.msg} at column {error.colno})."
        if not isinstance(given, dict):
            return f"Invalid arguments for {name}: expected a JSON object, found {type(given).__name__}."
        async with self.turn:
            if self.failure is not None:
                raise self.failure
            if self.is_over:
                return OVER
            self.calls += 1
            try:
                return self._heard(await self._called(name, given))
            except RolloutError as error:
                self.failure = error
                raise

    async def answer(self, text: str) -> None:
        """Pass the model's last message to the environment's terminal tool, if it has one."""
        if (terminal := self.tools.terminal_tool) is not None and not self.is_over:
            given = {terminal.arg: text} if terminal.arg else {}
            await self.call(terminal.name, orjson.dumps(given).decode())
            self.is_over = True

    async def close(self) -> None:
        """End the session on the server. A failure is only logged, because the server drops idle sessions itself."""
        if self.keeping_alive is not None:
            self.keeping_alive.cancel()
        if self.ors is not None:
            try:
                for path in ("/delete", "/delete_session"):
                    await self.ors.json(Any, "POST", path, self.sid, within_s=CLOSING_S)
            except RolloutError as error:
                logger.warning("session %s was not deleted: %s", self.sid, error)
            finally:
                self.ors.sessions.discard(self.sid)

    async def _called(self, name: str, given: Json) -> Result:
        assert self.ors is not None
        path, limit_s = f"/{self.ors.env}/call", self.ors.settings.call_timeout_s
        try:
            done = await self.ors.stream(path, self.sid, {"name": name, "input": given}, within_s=limit_s)
            return self.ors.parsed(Result, done.text)
        except EnvironmentFailed as error:
            is_gone = isinstance(error, Refused) and error.code in GONE
            reason = ". The session has expired on the server, or was deleted there" if is_gone else ""
            raise EnvironmentFailed(f"tool '{name}': {error}{reason}") from error

    def _heard(self, result: Result) -> str | list[Json]:
        if not result.ok:
            self.is_over = result.reason == "episode_finished"
            return f"Error: {result.error}"
        self.is_over = result.output.finished
        if result.output.reward is not None:
            self.rewards.append(result.output.reward)
        return content_of(result.output.blocks)

    async def _keep_alive(self, ors: Ors, ping_s: float) -> None:
        """Ping until the session is closed, because servers drop sessions without requests."""
        while True:
            await asyncio.sleep(ping_s)
            with suppress(EnvironmentFailed, Overloaded):
                await ors.json(Any, "POST", "/ping", self.sid, within_s=ping_s)


def content_of(blocks: Blocks) -> str | list[Json]:
    """Return blocks as the content of an input item: text, or content parts if there are images."""
    if all(isinstance(each, Text) for each in blocks):
        return "\n".join(each.text for each in blocks if isinstance(each, Text))
    return [
        {"type": "input_text", "text": each.text}
        if isinstance(each, Text)
        else {"type": "input_image", "image_url": f"data:{each.mimeType};base64,{each.data}", "detail": "auto"}
        for each in blocks
    ]
