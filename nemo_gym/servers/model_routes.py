"""Routes of a model server: three API dialects, streamed or not, on top of the author's two methods."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
import starlette.responses
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from nemo_gym.context.answer_recorder import AnswerRecorder, recorder
from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.dialects import streaming
from nemo_gym.dialects.anthropic import message_of_response, response_params_of_messages
from nemo_gym.dialects.calls import with_unique_calls, with_unique_chat_calls
from nemo_gym.dialects.lenient import STREAM_FIELDS, QualifiedName, plain_request, with_client_names
from nemo_gym.errors import DataError, ModelFailed, RolloutError, ServerCallError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.schemas.anthropic import AnthropicCreateParams, AnthropicError, AnthropicErrorDetail, AnthropicMessage
from nemo_gym.schemas.chat import ChatCompletion, ChatCompletionCreateParams
from nemo_gym.schemas.responses import RESPONSES_PATH, Response, ResponseCreateParams
from nemo_gym.schemas.rollout import INPUT_AT_HEADER
from nemo_gym.schemas.tokens import REQUIRED_TOKEN_METADATA_FIELDS, TokenIDLogProbMixin
from nemo_gym.servers.tools.handlers import Endpoint, Handler, Method, bare, is_class_of, with_signature
from nemo_gym.web.fast_routes import FastRoute
from nemo_gym.web.json_response import WrittenJson

logger = logging.getLogger(__name__)

CHAT_COMPLETIONS = "/v1/chat/completions"
MESSAGES = "/v1/messages"
OR_EVENTS: dict[int | str, JsonObject] = {200: {"content": {streaming.MEDIA_TYPE: {}}}}
"""OpenAPI documentation of a response that may also be an event stream."""
INPUT_NAME = b'"input":'
MOST_DIGITS = 18
_INPUT_AT = INPUT_AT_HEADER.encode()
REMEMBERED_PARAMS, REMEMBERED_BYTES = 64, 16_384
"""Limits of the cache of parsed params: entries, and bytes per entry. The turns of a rollout usually share params."""
ERROR_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
"""Anthropic's error types by status. For other statuses, the type is `invalid_request_error` or `api_error`."""

PassOn = Callable[[Mapping[str, object], memoryview], Awaitable[bytes]]
"""A function that takes validated params and unparsed items, and returns the JSON of a response."""
Ask = Callable[[BaseModel], Awaitable[object]]
"""A function that calls the author's method with a body. The method's other parameters are already bound."""
AnswerT = TypeVar("AnswerT")
BodyT = TypeVar("BodyT", bound=BaseModel)


def add_model_routes(
    app: FastAPI, *, responses: Method, chat_completions: Method, pass_on: PassOn | None = None
) -> None:
    """Add the routes of the Responses, Chat Completions and Messages APIs.

    If `pass_on` is given, it answers the requests of nemo_gym's agents, without parsing the items of the request or
    the response. If the body class of a method is not derived from nemo_gym's, the method is registered directly as
    the endpoint, without streaming. `/v1/messages` is added only if `responses` takes `ResponseCreateParams` or a
    subclass.
    """
    asking = Asking.of(responses, ResponseCreateParams)
    if asking is None:
        app.post(RESPONSES_PATH)(responses)
    else:
        validator = WrapValidator(partial(_strict_or_streamed, asking.kind))
        takes: object = Annotated[asking.parameter.annotation, validator]
        app.post(RESPONSES_PATH, responses=OR_EVENTS)(asking.endpoint(_answer_responses, takes=takes))
        route = app.router.routes[-1]
        if pass_on is not None and isinstance(route, FastRoute):
            route.pass_on = partial(_passed_on, asking.kind, pass_on)
        _add_messages_route(app, asking)
    asking_chat = Asking.of(chat_completions, ChatCompletionCreateParams)
    if asking_chat is None:
        app.post(CHAT_COMPLETIONS)(chat_completions)
    else:
        endpoint = asking_chat.endpoint(_answer_chat_completions, takes=asking_chat.parameter.annotation)
        app.post(CHAT_COMPLETIONS, responses=OR_EVENTS)(endpoint)


@dataclass(frozen=True)
class Asking:
    """An author's method, and its parameter that receives the body."""

    handler: Handler
    parameter: inspect.Parameter
    kind: type[BaseModel]
    """The class of the body."""

    @classmethod
    def of(cls, method: Method, kind: type[BaseModel]) -> Asking | None:
        """Wrap a method with a parameter of type `kind`; return None for any other method."""
        handler = Handler.of(method)
        bodies = [(each, bare(each.annotation)) for each in handler.open_parameters]
        return next((cls(handler, each, body) for each, body in bodies if is_class_of(body, kind)), None)

    def endpoint(
        self, answer: Callable[[Any, Ask], Awaitable[object]], *, takes: object, returns: type[BaseModel] | None = None
    ) -> Endpoint:
        """Return an endpoint that calls `answer`, with the author's parameters, but `takes` as the body."""
        method, signature, name = self.handler.method, self.handler.signature, self.parameter.name
        call = method if self.handler.is_coroutine else partial(asyncio.to_thread, method)

        async def endpoint(**arguments: object) -> object:
            async def ask(body: BaseModel) -> object:
                return await _recorded(call(**{**arguments, name: body}))

            return await answer(arguments[name], ask)

        return with_signature(
            endpoint,
            {**signature.parameters, name: _taking(self.parameter, takes)}.values(),
            returns=signature.return_annotation if returns is None else returns,
            name=answer.__name__.removeprefix("_answer_"),
            doc=answer.__doc__ or method.__doc__,
        )


def _taking(parameter: inspect.Parameter, takes: object) -> inspect.Parameter:
    if not isinstance(parameter.default, FieldInfo):
        return parameter.replace(annotation=takes)
    # Move a `= Body()` default into the annotation, because otherwise FastAPI would ignore its validators.
    return parameter.replace(annotation=Annotated[takes, parameter.default], default=inspect.Parameter.empty)


def _passed_on(kind: type[BaseModel], pass_on: PassOn, scope: Scope, body: bytes) -> Awaitable[bytes] | None:
    """Answer a request without parsing its items. Return None if that is not possible.

    It is possible only if the caller sends the position of the items, and if the params can be passed on unchanged.
    Callers that send the position have already checked the items: the row's input, model output and tool results.
    """
    begin = _announced_input(scope)
    if body[begin - len(INPUT_NAME) : begin] != INPUT_NAME or body[begin : begin + 1] != b"[" or body[-2:] != b"]}":
        return None
    params = (_remembered_params if begin <= REMEMBERED_BYTES else _params)(kind, body[:begin])
    return None if params is None else _recorded(pass_on(params, memoryview(body)[begin:-1]))


def _recorded(answering: Awaitable[AnswerT]) -> Awaitable[AnswerT]:
    """Return an answer. If the caller asks for token capture, record the answer's tokens first."""
    current = recorder.get()
    return answering if current is None else _answered(answering, current)


async def _answered(answering: Awaitable[AnswerT], record: AnswerRecorder) -> AnswerT:
    try:
        answer = await answering
    except Exception as error:
        await record(error)
        raise
    await record(answer)
    return answer


def _announced_input(scope: Scope) -> int:
    for name, value in scope["headers"]:
        # Skip longer numbers, because Python cannot convert numbers with thousands of digits.
        if name == _INPUT_AT and value.isdigit() and len(value) <= MOST_DIGITS:
            return int(value)
    return 0


def _params(kind: type[BaseModel], text: bytes) -> JsonObject | None:
    """Parse params from the text before a request's `input`. Return None if they cannot be passed on unchanged."""
    try:
        params = kind.model_validate(orjson.loads(text + b"[]}"))
    except (orjson.JSONDecodeError, ValidationError):
        return None
    if getattr(params, "stream", None):
        return None
    return params.model_dump(exclude_unset=True, exclude_none=True, exclude={"input", *STREAM_FIELDS})


_remembered_params = lru_cache(maxsize=REMEMBERED_PARAMS)(_params)


class StreamedRequest(NamedTuple):
    """A request for an event stream, and the namespace and name of each function that was renamed."""

    params: BaseModel
    names: Mapping[str, QualifiedName]


def _strict_or_streamed(kind: type[BaseModel], value: object, strict: ValidatorFunctionWrapHandler) -> object:
    if isinstance(value, dict) and value.get("stream") is True:
        plain = plain_request(value, kind.model_fields)
        return StreamedRequest(strict(plain.fields), plain.names)
    return strict(value)


async def _answer_responses(body: BaseModel | StreamedRequest, ask: Ask) -> object:
    if not isinstance(body, StreamedRequest):
        return _with_tokens_written(with_unique_calls(await ask(body), body))
    try:
        response = with_unique_calls(_typed(await ask(body.params), Response), body.params)
    except HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 - these clients expect any failure as an event
        model = getattr(body.params, "model", None)
        response = streaming.failed_response(_message_of(error, RESPONSES_PATH), model=model)
    return _stream(streaming.events_of_response(with_client_names(response, body.names)))


def _with_tokens_written(answer: object) -> object:
    """Use orjson to serialize a response with tokens, because pydantic takes five times as long to write numbers."""
    if type(answer) is not Response or not any(isinstance(item, TokenIDLogProbMixin) for item in answer.output):
        return answer
    tokens = REQUIRED_TOKEN_METADATA_FIELDS
    written = answer.model_dump(mode="json", exclude={"output": {"__all__": set(tokens)}})
    for item, fields in zip(answer.output, written["output"], strict=True):
        if isinstance(item, TokenIDLogProbMixin):
            fields |= {name: getattr(item, name) for name in tokens}
    return WrittenJson(dump_json(written))


async def _answer_chat_completions(body: ChatCompletionCreateParams, ask: Ask) -> object:
    if not body.stream:
        return with_unique_chat_calls(await ask(body), body)
    asked = {name: value for name, value in body if name in body.model_fields_set - STREAM_FIELDS}
    answer = with_unique_chat_calls(await ask(type(body).model_construct(**asked)), body)
    completion = _typed(answer, ChatCompletion)
    include_usage = bool((body.stream_options or {}).get("include_usage"))
    return _stream(streaming.chunks_of_completion(completion, include_usage=include_usage))


def _add_messages_route(app: FastAPI, asking: Asking) -> None:
    async def _answer_messages(body: AnthropicCreateParams, ask: Ask) -> object:
        """Answer in the format of the Messages API."""
        params = response_params_of_messages(body)
        response = with_unique_calls(_typed(await ask(_typed(params, asking.kind)), Response), params)
        if response.error is not None:
            raise ModelFailed(f"the model server returned an error: {response.error.model_dump()}")
        message = message_of_response(response)
        return _stream(streaming.events_of_message(message)) if body.stream else message

    app.router.add_api_route(
        MESSAGES,
        asking.endpoint(_answer_messages, takes=AnthropicCreateParams, returns=AnthropicMessage),
        methods=["POST"],
        route_class_override=MessagesRoute,
        responses={**OR_EVENTS, 400: {"model": AnthropicError}, 502: {"model": AnthropicError}},
    )


class MessagesRoute(APIRoute):
    """A route that reports every error in the format of the Messages API."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, starlette.responses.Response]]:
        """Return FastAPI's handler, with its errors converted to the format of the Messages API."""
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> starlette.responses.Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _error(400, "; ".join(_problem(each) for each in error.errors()))
            except DataError as error:
                return _error(400, str(error))
            except HTTPException as error:
                return _error(error.status_code, str(error.detail))
            except Exception as error:  # noqa: BLE001 - these clients expect any failure in this form
                return _error(502, _message_of(error, MESSAGES))

        return handle_errors


def _problem(error: ErrorDetails) -> str:
    place = ".".join(str(step) for step in error["loc"][1:])
    return f"{place}: {error['msg']}" if place else error["msg"]


def _error(status: int, message: str) -> starlette.responses.Response:
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = AnthropicError(error=AnthropicErrorDetail(type=kind, message=message))
    return starlette.responses.JSONResponse(error.model_dump(), status)


def _typed(value: object, kind: type[BodyT]) -> BodyT:
    if isinstance(value, kind):
        return value
    if isinstance(value, starlette.responses.Response):
        # Authors return a `Response` if they have the JSON already, or to pass on an endpoint's error.
        written = bytes(value.body)
        if value.status_code >= 400:
            raise HTTPException(value.status_code, written.decode("utf-8", "replace"))
        return kind.model_validate_json(written)
    return kind.model_validate(value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value)


def _message_of(error: Exception, path: str) -> str:
    """Log a failure and return the message for the client."""
    if isinstance(error, (RolloutError, ServerCallError)):
        logger.warning("%s failed (rollout %s): %s", path, current_rollout_id(), error)
        return str(error)
    logger.exception("%s failed (rollout %s)", path, current_rollout_id(), exc_info=error)
    return f"{path} raised {error!r}; the model server's log has the traceback"


def _stream(events: Iterable[bytes]) -> starlette.responses.Response:
    # The response is complete, so all events are sent at once.
    return starlette.responses.Response(
        b"".join(events), media_type=streaming.MEDIA_TYPE, headers={"cache-control": "no-cache"}
    )
