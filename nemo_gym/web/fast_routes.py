"""A fast path for calls of plain routes. It avoids the cost of FastAPI features that a route does not use.

FastAPI still defines and documents all routes, and handles the calls that the fast path cannot. The fast path handles
a POST to a fixed path whose endpoint takes a JSON body, the request, or both. It uses FastAPI's own fields to validate
and serialize, but not its router, dependencies and exit stacks. It does not change the effect of middleware, exception
handlers, earlier routes, dependencies and invalid bodies.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.datastructures import DefaultPlaceholder
from fastapi.exceptions import EndpointContext
from fastapi.params import Body
from fastapi.routing import APIRoute, serialize_response
from pydantic_core import PydanticSerializationError, from_json
from starlette.datastructures import URL
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.context.rollout_id import PREFIXED_PATH_SCOPE_KEY
from nemo_gym.jsonl import dump_json, without_lone_surrogates
from nemo_gym.web.answer import SET_COOKIE_SCOPE_KEY
from nemo_gym.web.json_response import WrittenJson

KEPT_BYTES = 256 * 1024
"""Size in bytes above which a body is freed while its endpoint runs, unless the endpoint reads the body's bytes."""


class FastRoute(APIRoute):
    """A route that may use the fast path. Routes of other classes never use it."""

    pass_on: Callable[[Scope, bytes], Awaitable[bytes] | None] | None = None
    """A function that returns the JSON response, or None if the endpoint must be called."""
    keeps_body: bool = True
    """Whether the endpoint may read the body's bytes. Otherwise only the parsed JSON of a long body is kept."""
    shows_prefix: bool = False
    """Whether `request.url` has the path as the caller sent it, with the prefix that names a rollout."""
    loads_in_part: Callable[[bytes], Any | None] | None = None
    """A function that parses only the needed parts of a body. If it returns None, the whole body is parsed."""

    def __init__(self, path: str, endpoint: Callable[..., object], **settings: Any) -> None:
        super().__init__(path, endpoint, **settings)
        self._built = self.app

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, but replace lone surrogates in the body before it is parsed."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if self.shows_prefix:
                _show_prefixed_path(request)
            if self.body_field is not None and _is_json(request.scope):
                # Ignore this error, because FastAPI itself reports a caller that hung up.
                with contextlib.suppress(ClientDisconnect):
                    # Set the attribute in which Starlette caches the body.
                    request._body = without_lone_surrogates(await request.body())
            return await handler(request)

        return handle

    @property
    def was_wrapped(self) -> bool:
        """Whether the server's author has wrapped the route's app. If so, the fast path is not used."""
        return self.app is not self._built


MATCH_BY_PATH = frozenset({FastRoute, APIRoute, Route, Mount})
"""Classes of routes that match by path and method only, so that their matches can be cached."""


class FastRoutes:
    """Middleware that handles calls of plain routes itself, before they reach the router."""

    def __init__(self, app: ASGIApp, *, of: FastAPI) -> None:
        self.app = app
        self._router = of.router
        # Leave out the handler for all exceptions, because FastAPI calls it outside of all middleware.
        handlers = {kind: each for kind, each in of.exception_handlers.items() if kind not in (500, Exception)}
        self._raising = ExceptionMiddleware(_raise_again, handlers=handlers)
        self._routes: list[BaseRoute] = []
        self._calls: dict[str, _FastCall | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._call_of(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if call is None:
            await self.app(scope, receive, send)
            return
        scope["route"], scope["endpoint"] = call.route, call.endpoint
        scope.setdefault("path_params", {})
        received = Received(receive)
        try:
            answer = await call.answer(scope, received) if await received.is_complete() else None
        except Exception as error:  # noqa: BLE001 - its registered handler answers; without one it is raised again
            await self._raising({**scope, "nemo_gym.raised": error}, received.again(), send)
            return
        if answer is None:
            await self.app(scope, received.again(), send)
        else:
            await answer(scope, receive, send)

    def _call_of(self, scope: Scope) -> _FastCall | None:
        routes = self._router.routes
        if routes != self._routes:
            # Clear the cache, because an author may add routes at any time, even in front of existing ones.
            self._routes, self._calls = list(routes), {}
        path: str = scope["path"]
        if scope.get("root_path") or scope.get("fastapi.telemetry"):
            return None
        if path not in self._calls:
            first = next((route for route in routes if not _is_passed(route, scope)), None)
            if type(first) is not FastRoute or first.path != path:
                # Do not cache this result, because the number of paths without a fast route is unlimited.
                return None
            self._calls[path] = _FastCall.of(first)
        call = self._calls[path]
        return None if call is None or call.route.was_wrapped else call


def _is_passed(route: BaseRoute, scope: Scope) -> bool:
    """Return whether this route cannot match any POST request for this path."""
    return type(route) in MATCH_BY_PATH and route.matches(scope)[0] is not Match.FULL


Answer = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class _FastCall:
    """A route's endpoint, called on the fast path."""

    route: FastRoute
    endpoint: Callable[..., Awaitable[object]]
    request_name: str | None
    location: EndpointContext
    """The endpoint's file and line, for the error about an invalid response."""

    @classmethod
    def of(cls, route: FastRoute) -> _FastCall | None:
        """Return the fast call of a route, or None if FastAPI must handle it, such as one with query parameters."""
        asks = route.dependant
        asks_for_more = (
            route.param_convertors or asks.path_params or asks.query_params or asks.header_params or asks.cookie_params
            or asks.dependencies or len(asks.body_params) > 1 or route._embed_body_fields or asks.websocket_param_name
            or asks.http_connection_param_name or asks.response_param_name or asks.background_tasks_param_name
            or asks.security_scopes_param_name
        )  # fmt: skip
        answers_otherwise = (
            not isinstance(route.response_class, DefaultPlaceholder)
            or route.status_code is not None
            or route.stream_item_field is not None
        )
        is_json = route.body_field is None or type(route.body_field.field_info) is Body
        if asks_for_more or answers_otherwise or not is_json or not inspect.iscoroutinefunction(asks.call):
            return None
        return cls(route, asks.call, asks.request_param_name, _location_of(asks.call, route.path))

    async def answer(self, scope: Scope, received: Received) -> Answer | None:
        """Return the response, or None if FastAPI must report what is wrong with the body."""
        body = received.body()
        pass_on = self.route.pass_on
        if pass_on is not None and (passed_on := pass_on(scope, body)) is not None:
            # Send no session cookie. `pass_on` cannot change the session, and signing a cookie is slow.
            scope.pop(SET_COOKIE_SCOPE_KEY, None)
            received.forget()
            del body
            return WrittenJson(await passed_on)
        values: dict[str, object] = {}
        request: _ReadRequest | None = None
        if self.request_name is not None:
            request = values[self.request_name] = _ReadRequest(scope, received)
            if self.route.shows_prefix:
                _show_prefixed_path(request)
        field = self.route.body_field
        if field is not None:
            if not body or not _is_json(scope):
                return None
            try:
                in_part = None if self.route.loads_in_part is None else self.route.loads_in_part(body)
                given = from_json(body) if in_part is None else in_part
            except ValueError:
                # Let the route's handler process the body: it reports what is wrong, or replaces lone surrogates.
                return None
            values[field.name], problems = field.validate(given, {}, loc=("body",))
            if problems:
                return None
            if request is not None and in_part is None:
                request._json = given
            # Free memory, because the body may be large and thousands of calls may wait for their endpoints.
            if in_part is None and not self.route.keeps_body and len(body) > KEPT_BYTES:
                received.keep_only(given)
            del given, in_part, body
        answering = self.endpoint(**values)
        # Drop this function's references, so that the endpoint can free its arguments while it runs.
        values.clear()
        result = await answering
        return result if isinstance(result, Response) else await self._written(result)

    async def _written(self, result: object) -> Answer:
        try:
            if self.route.response_field is None:
                return JSONResponse(await self._serialized(result))
            return WrittenJson(await self._serialized(result, as_bytes=True))
        except (UnicodeEncodeError, PydanticSerializationError) as error:
            if "surrogates not allowed" not in str(error):
                raise
            return WrittenJson(dump_json(await self._serialized(result)))

    async def _serialized(self, result: object, *, as_bytes: bool = False) -> Any:
        route = self.route
        return await serialize_response(
            field=route.response_field,
            response_content=result,
            include=route.response_model_include,
            exclude=route.response_model_exclude,
            by_alias=route.response_model_by_alias,
            exclude_unset=route.response_model_exclude_unset,
            exclude_defaults=route.response_model_exclude_defaults,
            exclude_none=route.response_model_exclude_none,
            endpoint_ctx=self.location,
            dump_json=as_bytes,
        )


def _location_of(endpoint: Callable[..., object], path: str) -> EndpointContext:
    # Do not use FastAPI's own function. It caches by a function's id, which Python may reuse for another function.
    location: EndpointContext = {"function": getattr(endpoint, "__name__", ""), "path": f"POST {path}"}
    code = getattr(inspect.unwrap(endpoint), "__code__", None)
    if code is not None:
        location |= {"file": code.co_filename, "line": code.co_firstlineno}
    return location


class Received:
    """The messages received from a caller: the request's body, or a disconnect."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self._messages: list[Message] = []
        self._json: object = None

    async def is_complete(self) -> bool:
        """Receive the body. Return False if the caller hung up before the body was complete."""
        message = await self.receive()
        self._messages = [message]
        while message.get("more_body", False):
            message = await self.receive()
            self._messages.append(message)
        is_complete: bool = message["type"] == "http.request"
        if is_complete and len(self._messages) > 1:
            self.replace(b"".join([each.get("body", b"") for each in self._messages]))
        return is_complete

    def body(self) -> bytes:
        if self._json is not None:
            return dump_json(self._json)
        body: bytes = self._messages[0].get("body", b"")
        return body

    def replace(self, body: bytes) -> None:
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]

    def keep_only(self, json: object) -> None:
        """Replace the body's bytes with its parsed JSON. A later call of `body` serializes the JSON again."""
        self._json, self._messages = json, []

    def forget(self) -> None:
        """Free the body after it was passed on. From then on, `body` returns empty bytes."""
        self.replace(b"")

    def again(self) -> Receive:
        """Return a `receive` that first repeats the received messages, then receives further ones."""
        if self._json is not None:
            self.replace(self.body())
        messages = self._messages[::-1]

        async def receive_again() -> Message:
            return messages.pop() if messages else await self.receive()

        return receive_again


class _ReadRequest(Request):
    """A request whose body has been received."""

    def __init__(self, scope: Scope, received: Received) -> None:
        super().__init__(scope, received.receive)
        self._received = received

    async def body(self) -> bytes:
        return self._received.body()

    async def stream(self) -> AsyncGenerator[bytes, None]:
        yield await self.body()
        yield b""


def _show_prefixed_path(request: Request) -> None:
    """Give `request.url` the caller's path, with the prefix that names a rollout. The router sees no prefix."""
    prefixed = request.scope.get(PREFIXED_PATH_SCOPE_KEY)
    if prefixed is not None:
        # Set the attribute in which Starlette caches the URL.
        request._url = URL(scope={**request.scope, "path": prefixed})


def _is_json(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bool(value == b"application/json" or value.startswith(b"application/json;"))
    return False


async def _raise_again(scope: Scope, receive: Receive, send: Send) -> None:
    raise scope["nemo_gym.raised"]
