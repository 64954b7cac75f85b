"""Base class of games: each turn of the model is a step, and each step may earn a reward."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from nemo_gym.calls.caller import encode_json
from nemo_gym.calls.hooks import hooks
from nemo_gym.errors import InvalidTask, OutOfTurn, SignatureError
from nemo_gym.schemas.items import FunctionToolCall, OutputItem, OutputMessage, ReasoningItem
from nemo_gym.schemas.rollout import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.schemas.stepped import STEP_REQUEST_ID_KEY, BaseResetResponse, BaseStepResponse
from nemo_gym.servers.resources import (
    NEWER,
    SimpleResourcesServer,
    failure_in,
    finite_reward,
    in_new_session,
    store_of,
)
from nemo_gym.servers.sessions import SessionState, session_id_of
from nemo_gym.servers.tools.handlers import Endpoint, Handler, Method, endpoint_of, is_class_of
from nemo_gym.text import problems_in, with_article
from nemo_gym.web.json_response import WrittenJson
from nemo_gym.web.session_cookies import SESSION_ID_KEY

AnswerT = TypeVar("AnswerT", bound=BaseModel)

OFFERS = {"supports_explicit_close": True, "supports_step_idempotency": True}
"""Features that each response to `/reset` announces to the agent."""

REPLACEABLE = NEWER | {"/close", "/seed_session", "/verify"}
"""Paths at which a game's own route replaces nemo_gym's."""


class _Progress(SessionState):
    """The state of one game: whether it has begun or ended, and the response to its last step."""

    has_begun: bool = False
    has_ended: bool = False
    step_request_id: str | None = None
    step_answer: bytes = b""
    """The last step's request id and response, for an agent that lost the response and sends the request again."""
    turn: asyncio.Lock = Field(default_factory=asyncio.Lock)


class PlayedRequest(BaseVerifyRequest):
    """The body of `/verify`: the row of any game, with the response of the whole rollout."""

    model_config = ConfigDict(extra="allow")


class SteppedResourcesServer(SimpleResourcesServer):
    """Base class of games. Implement `reset` and `step`; a `SessionState` parameter receives this rollout's game.

    `reset(body)` returns the first observation as text, or a `BaseResetResponse`. `step(body)` returns a
    `BaseStepResponse`. Both may also return Gymnasium's tuples: `(observation, info)` and `(observation, reward,
    terminated, truncated, info)`.

    An agent plays with `/reset`, `/step` and `/close`. `/verify` takes a whole rollout and replays it turn by turn
    from its row. This gives the same reward if the row alone determines the game.
    """

    EPISODE_ROUTES = ("/reset", "/step")
    KEY_METRICS = (
        "mean/reward", "mean/steps", "mean/terminated", "mean/truncated", "mean/input_tokens", "mean/output_tokens",
    )  # fmt: skip
    """The metrics of a game. Means of a row's own numbers, such as its seed, are meaningless and therefore omitted."""

    NOT_TOOLS = SimpleResourcesServer.NOT_TOOLS | {"reset", "step", "close"}

    @abstractmethod
    async def reset(self, body: Any) -> object:
        """Begin the game that a row describes."""

    @abstractmethod
    async def step(self, body: Any) -> object:
        """Apply the model's turn, `body.response`, to the game."""

    def game_methods(self) -> tuple[Method, Method]:
        """Return the methods that `/reset` and `/step` call. Override `game_methods` to use other methods."""
        return self.reset, self.step

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        reset, step = (Handler.of(method) for method in self.game_methods())
        app.post("/reset")(self._reset_endpoint(reset))
        app.post("/step")(self._step_endpoint(step))
        app.post("/close")(self._forget_rollout)
        hooks().let_routes_replace(app, REPLACEABLE)
        return app

    async def verify(self, body: PlayedRequest) -> object:
        """Replay the response's turns in a new game and return the sum of the steps' rewards."""
        reset, step = (Handler.of(method) for method in self.game_methods())
        row = {**(body.model_extra or {}), "responses_create_params": body.responses_create_params}
        session_id = f"replay-{uuid4().hex}"
        reward, steps, last = 0.0, 0, BaseStepResponse()
        try:
            await reset.call(_replayed("/reset", session_id, row), store_of(self), _arguments(self, reset, row))
            for turn in turns_of(body.response.output):
                fields = {**row, "response": body.response.model_copy(update={"output": turn})}
                request = _replayed("/step", session_id, fields)
                last = _step_answer(self, await step.call(request, store_of(self), _arguments(self, step, fields)))
                reward, steps = reward + last.reward, steps + 1
                if last.terminated or last.truncated:
                    break
        finally:
            await store_of(self).drop(session_id)
        return BaseVerifyResponse.grade(
            body, reward=reward, steps=steps, terminated=last.terminated, truncated=last.truncated
        )

    def _reset_endpoint(self, handler: Handler) -> Endpoint:
        sessions = store_of(self)

        async def reset(request: Request, arguments: dict[str, object]) -> Response:
            async def begin() -> Response:
                answer = _reset_answer(self, await handler.call(request, sessions, arguments))
                answer.info = {**OFFERS, **answer.info}
                _progress(self, request).has_begun = True
                return _json(answer)

            return await in_new_session(sessions, request, begin)

        return endpoint_of(handler, reset, returns=BaseResetResponse)

    def _step_endpoint(self, handler: Handler) -> Endpoint:
        sessions = store_of(self)

        async def step(request: Request, arguments: dict[str, object]) -> Response:
            progress = _progress(self, request)
            # Mark the session as in use, because the method itself may have no `SessionState`.
            with sessions.in_use(session_id_of(request)):
                request_id = (await request.json()).get(STEP_REQUEST_ID_KEY)
                async with progress.turn:
                    if request_id is not None and request_id == progress.step_request_id:
                        return WrittenJson(progress.step_answer)
                    _check_is_running(self, progress)
                    answer = _step_answer(self, await handler.call(request, sessions, arguments))
                    response = _json(answer)
                    progress.has_ended = answer.terminated or answer.truncated
                    progress.step_request_id, progress.step_answer = request_id, bytes(response.body)
                    return response

        return endpoint_of(handler, step, returns=BaseStepResponse)


# These are functions instead of methods, because games may define methods `_progress` or `_answer`.


def _progress(server: SteppedResourcesServer, request: Request) -> _Progress:
    return store_of(server).get(session_id_of(request), _Progress)


def _check_is_running(server: SteppedResourcesServer, progress: _Progress) -> None:
    if not progress.has_begun:
        raise _out_of_turn(
            server, "no game is running in this session; POST /reset first, and send the cookie from its response"
        )
    if progress.has_ended:
        raise _out_of_turn(server, "the game has ended; POST /reset to start another one")


def _out_of_turn(server: SteppedResourcesServer, problem: str) -> OutOfTurn:
    return OutOfTurn(f"{server.config.name}: {problem}", server=server.config.name)


def _reset_answer(server: SteppedResourcesServer, result: object) -> BaseResetResponse:
    if result is None or isinstance(result, str):
        return BaseResetResponse(observation=result)
    return _answer(server, result, BaseResetResponse, "reset", "a text, a BaseResetResponse or (observation, info)")


def _step_answer(server: SteppedResourcesServer, result: object) -> BaseStepResponse:
    expected = "a BaseStepResponse or (observation, reward, terminated, truncated, info)"
    answer = _answer(server, result, BaseStepResponse, "step", expected)
    finite_reward(server, answer.reward, "step")
    return answer


def _answer(
    server: SteppedResourcesServer, result: object, kind: type[AnswerT], method: str, expected: str
) -> AnswerT:
    if isinstance(result, kind):
        return result
    names = list(kind.model_fields)
    if isinstance(result, tuple) and len(result) == len(names):
        try:
            return kind.model_validate(dict(zip(names, result, strict=True)))
        except ValidationError as error:
            result = f"{type(result).__name__} ({problems_in(error, 1)})"
    found = result if isinstance(result, str) else type(result).__name__
    raise failure_in(server, f"{method} returned {with_article(found)}; expected {expected}", method=method)


def _arguments(server: SteppedResourcesServer, handler: Handler, fields: Mapping[str, object]) -> dict[str, object]:
    """Return the method's body argument, parsed from `fields` as FastAPI would parse it from a request."""
    bodies = [each for each in handler.open_parameters if is_class_of(each.annotation, BaseModel)]
    if not bodies:
        return {}
    if len(bodies) > 1:
        raise SignatureError(
            f"{handler.method.__qualname__} has several parameters for the row. Keep only one of them, such as `body`"
        )
    name, kind = bodies[0].name, bodies[0].annotation
    try:
        return {name: kind.model_validate(fields)}
    except ValidationError as error:
        raise InvalidTask(
            f"{server.config.name}: the row cannot be played: {problems_in(error, 1)}", server=server.config.name
        ) from error


def turns_of(output: Sequence[OutputItem]) -> Iterator[list[OutputItem]]:
    """Yield the model's turns in a rollout's output. A turn ends at an item that the model received.

    Without such items, as in hand-written output, each message or call ends a turn.
    """
    has_separators = any(not isinstance(item, (OutputMessage, FunctionToolCall, ReasoningItem)) for item in output)
    turn: list[OutputItem] = []
    for item in output:
        if isinstance(item, (OutputMessage, FunctionToolCall, ReasoningItem)):
            turn.append(item)
            if has_separators or isinstance(item, ReasoningItem):
                continue
        if turn:
            yield turn
        turn = []
    if turn:
        yield turn


def _replayed(path: str, session_id: str, fields: Mapping[str, object]) -> Request:
    """Return the request of a replayed `/reset` or `/step` call, for a method that takes a `Request`."""

    async def receive() -> Message:
        return {"type": "http.request", "body": encode_json(fields)}

    return Request(
        {"type": "http", "method": "POST", "path": path, "headers": [], "session": {SESSION_ID_KEY: session_id}},
        receive,
    )


def _json(answer: BaseModel) -> Response:
    return WrittenJson(orjson.dumps(answer.model_dump(mode="json")))
