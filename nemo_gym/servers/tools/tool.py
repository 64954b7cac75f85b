"""Tools made from methods: their routes, their JSON schemas, and the response to wrong arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, overload

import orjson
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from nemo_gym.errors import SignatureError, ToolError
from nemo_gym.jsonl import dump_json, loads_exact
from nemo_gym.schemas.shapes import ANY_KEYS, ToolDefinition
from nemo_gym.servers.sessions import SessionStore
from nemo_gym.servers.tools.arguments import Arguments, SchemaArguments, TypedArguments, WrongArguments
from nemo_gym.servers.tools.handlers import Handler, Method, placed_at
from nemo_gym.servers.tools.json_schema import type_words
from nemo_gym.servers.tools.parts import parts_response
from nemo_gym.text import with_article
from nemo_gym.web.json_response import WrittenJson

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

RESERVED_MCP_TOOL_NAMES = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp"})
"""Tool names that release 0.7 also reserves."""
RESERVED_NAMES = RESERVED_MCP_TOOL_NAMES | {"close_session", "reverify_mode", "tools"}
"""Routes of a resources server that are not tools. Tools must not have these names, and models must not call them.

Liveness and documentation routes are GET only, so a tool may have the name of one.
"""

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")

INDEPENDENT_TOOLS_HEADER = "x-nemo-gym-independent-tools"
"""Header of `GET /tools`: the tools whose calls in one turn may run at the same time, separated by commas."""

_MARK = "__nemo_gym_tool__"


def is_callable_name(name: str) -> bool:
    """Return whether a model may call a tool of this name: one path segment, and not one of the server's routes."""
    return NAME_PATTERN.fullmatch(name) is not None and name not in RESERVED_NAMES


@overload
def tool(method: MethodT, /) -> MethodT: ...


@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[MethodT], MethodT]: ...


def tool(
    method: MethodT | None = None, /, *, name: str | None = None, description: str | None = None
) -> MethodT | Callable[[MethodT], MethodT]:
    """Make a method of a resources server a tool: `POST /<name>`, with a JSON schema from its signature.

    Arguments are typed parameters; a `pydantic.Field` in `Annotated` adds bounds and descriptions. The docstring is
    the tool's description. `SessionState` and `Request` parameters are filled in and hidden from the model. The method
    returns text, any JSON-serializable value, or a list of content parts such as `NeMoGymResponseInputImage`. It
    raises `ToolError` to return an error to the model.
    """

    def mark(function: MethodT) -> MethodT:
        setattr(function, _MARK, {"name": name or function.__name__, "description": description})
        return function

    return mark if method is None else mark(method)


@dataclass(frozen=True)
class Tool:
    """A tool of a resources server: its name, its description, its arguments' schema and its handler."""

    name: str
    description: str
    handler: Handler
    arguments: Arguments

    @classmethod
    def of(
        cls,
        method: Method,
        *,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Tool:
        """Create a tool from a method. Its schema comes from the signature, its description from the docstring.

        If the JSON Schema `parameters` is given, the method receives the checked arguments as one dict. Use this for
        tools that are known only from data. Raise `SignatureError` if the method cannot be a tool.
        """
        where = f"@tool {getattr(method, '__qualname__', method)}"
        with placed_at(method):
            if name in RESERVED_NAMES:
                raise SignatureError(
                    f"{where}: '{name}' is a route of every resources server. Give the tool another name: "
                    '@tool(name="…")'
                )
            if not is_callable_name(name):
                raise SignatureError(
                    f"{where}: '{name}' is not a valid tool name. Use at most 64 letters, digits, '_' and '-'"
                )
            handler = Handler.of(method)
            arguments: Arguments
            if parameters is None:
                arguments = TypedArguments(name, where, handler.open_parameters)
            else:
                arguments = SchemaArguments(where, handler.open_parameters, parameters)
            return cls(name, description or inspect.getdoc(method) or "", handler, arguments)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.schema

    @property
    def is_independent(self) -> bool:
        """Whether calls of one rollout may run at the same time.

        True if the method uses neither the session nor the request.
        """
        return not self.handler.states and self.handler.request_parameter is None

    @property
    def definition(self) -> ToolDefinition:
        """The tool's entry in a request's list of tools."""
        described: ToolDefinition = {"description": self.description, "parameters": self.parameters}
        return {"type": "function", "name": self.name, **described, "strict": False}

    async def call(self, request: Request, store: SessionStore, body: bytes) -> Response:
        """Run one call. For wrong arguments and `ToolError`, return a message for the model, with status 422."""
        try:
            given = loads_exact(body or b"{}")
        except orjson.JSONDecodeError as error:
            return self._rejection(f"not valid JSON ({error.msg} at column {error.colno})")
        if not isinstance(given, dict):
            return self._rejection(f"expected a JSON object, found {type(given).__name__}")
        try:
            values = self.arguments.read(given)
        except WrongArguments as error:
            return self._rejection(str(error))
        try:
            result = await self.handler.call(request, store, values)
        except ToolError as error:
            return _text_response(f"Error: {error}", status=422)
        return _answer(result)

    def _rejection(self, problem: str) -> Response:
        required, shared = self.parameters["required"], self.parameters.get("$defs", {})
        expected = ", ".join(
            f"{name} ({type_words(schema, shared)}{'' if name in required else ', optional'})"
            for name, schema in self.parameters["properties"].items()
        )
        return PlainTextResponse(
            f"Invalid arguments for {self.name}: {problem}. Expected: {expected or 'no arguments'}.", status_code=422
        )


def tools_of(server: object) -> list[Tool]:
    """Return the `@tool` methods of a server in the order of their definition, base classes first.

    An override of a base class's tool stays a tool. It keeps the name unless it has its own `@tool`.
    """
    marks: dict[str, object] = {}
    for cls in reversed(type(server).__mro__):
        marks |= {attribute: value for attribute, value in vars(cls).items() if hasattr(value, _MARK)}
    found: dict[str, Tool] = {}
    for attribute, value in marks.items():
        mark, method = getattr(value, _MARK), getattr(server, attribute)
        with placed_at(method):
            _check_hides_nothing(type(server), attribute)
        each = Tool.of(method, name=mark["name"], description=mark["description"])
        if each.name in found:
            with placed_at(method):
                raise SignatureError(f"{type(server).__name__} has two tools called '{each.name}'. Rename one")
        found[each.name] = each
    return list(found.values())


def _check_hides_nothing(cls: type, attribute: str) -> None:
    for base in cls.__mro__:
        if base.__module__.startswith("nemo_gym.") and attribute in vars(base):
            raise SignatureError(
                f"@tool {cls.__name__}.{attribute}: this method would override {base.__name__}.{attribute}. "
                f'Rename the method and keep the tool\'s name: @tool(name="{attribute}")'
            )


def add_tool_routes(app: FastAPI, tools: Sequence[Tool], store: SessionStore) -> None:
    """Add a route for each tool, and list all tools at `GET /tools`."""
    for each in tools:
        _add_route(app, each, store)
    definitions = [each.definition for each in tools]
    independent = ",".join(each.name for each in tools if each.is_independent)

    async def list_tools(response: Response) -> list[Annotated[ToolDefinition, ANY_KEYS]]:
        """Return the tools as a request lists them. A header names the tools whose calls may run at the same time."""
        response.headers[INDEPENDENT_TOOLS_HEADER] = independent
        return definitions

    app.get("/tools")(list_tools)


def _add_route(app: FastAPI, each: Tool, store: SessionStore) -> None:
    async def call(request: Request) -> Response:
        return await each.call(request, store, await request.body())

    app.post(
        f"/{each.name}",
        name=each.name,
        description=each.description,
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": each.parameters}}}},
    )(call)


def _answer(result: object) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, str):
        return _text_response(result)
    if (parts := parts_response(result)) is not None:
        return parts
    return WrittenJson(dump_json(result, default=_json_default))


def _text_response(text: str, status: int = 200) -> Response:
    # Replace lone surrogates, because they cannot be encoded.
    return PlainTextResponse(text.encode(errors="replace"), status)


def _json_default(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(
        f"a tool returned {with_article(type(value).__name__)}, which is not JSON-serializable. Return text or plain "
        "data"
    )
