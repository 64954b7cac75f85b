"""From a method to a tool: its route, its JSON schema, and the answer to a call with wrong arguments."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import orjson
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from nemo_gym.errors import SignatureError, ToolError
from nemo_gym.servers.sessions import SessionStore
from nemo_gym.servers.tools.arguments import Arguments, SchemaArguments, TypedArguments, WrongArguments
from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.servers.tools.json_schema import type_words

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

RESERVED_MCP_TOOL_NAMES = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp"})
"""Those that the published package reserves, too."""
RESERVED_NAMES = RESERVED_MCP_TOOL_NAMES | {"close_session", "reverify_mode", "tools"}
"""Routes of a resources server that are not tools: no tool may be called so, and no model may reach them.

Liveness and documentation are GET only; a tool of such a name has the POST route to itself.
"""

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")

INDEPENDENT_TOOLS_HEADER = "x-nemo-gym-independent-tools"
"""With `GET /tools`: the names, joined by commas, of the tools whose calls in one turn may run at the same time."""

LONG_NUMBER = re.compile(rb"\d{19}")
"""An integer beyond 64 bits has at least as many digits: orjson would make a rounded float of it, `json` does not."""

_MARK = "__nemo_gym_tool__"


def is_callable_name(name: str) -> bool:
    """Whether a model may ask for a tool of this name: one path segment, and not a route of the server's own."""
    return NAME_PATTERN.fullmatch(name) is not None and name not in RESERVED_NAMES


@overload
def tool(method: MethodT, /) -> MethodT: ...


@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[MethodT], MethodT]: ...


def tool(
    method: MethodT | None = None, /, *, name: str | None = None, description: str | None = None
) -> MethodT | Callable[[MethodT], MethodT]:
    """Make a method of a resources server a tool: `POST /<name>`, with a JSON schema from its signature.

    Arguments are typed parameters (a `pydantic.Field` in `Annotated` adds bounds and descriptions), the description
    is the docstring. `SessionState` and `Request` parameters are filled in and unknown to the model. The method
    returns text, or anything that is JSON; it raises `ToolError` to tell the model what was wrong.
    """

    def mark(function: MethodT) -> MethodT:
        setattr(function, _MARK, {"name": name or function.__name__, "description": description})
        return function

    return mark if method is None else mark(method)


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str
    handler: Handler
    arguments: Arguments

    @classmethod
    def of(
        cls,
        method: Callable[..., Any],
        *,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Tool:
        """A tool from a method: schema from its signature, description from its docstring.

        With `parameters`, a JSON Schema, the method receives the checked arguments as one dict: so are tools made
        that are known only from data. `SignatureError` says what cannot be a tool, and why.
        """
        where = f"@tool {getattr(method, '__qualname__', method)}"
        if name in RESERVED_NAMES:
            raise SignatureError(
                f"{where}: '{name}' is a route of every resources server; give the tool another name: "
                '@tool(name="…")'
            )
        if not is_callable_name(name):
            raise SignatureError(
                f"{where}: '{name}' is not a tool's name: letters, digits, '_' and '-' only, 64 at most"
            )
        handler = Handler.of(method)
        arguments: Arguments
        if parameters is None:
            arguments = TypedArguments(name, where, handler.open_parameters)
        else:
            arguments = SchemaArguments(where, handler.open_parameters, parameters)
        return cls(name, description or inspect.getdoc(method) or "", handler, arguments)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.schema

    @property
    def is_independent(self) -> bool:
        """Whether calls of one rollout may run at the same time: the method sees nothing of the session."""
        return not self.handler.states and self.handler.request_parameter is None

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as a request lists it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": False,
        }

    async def call(self, request: Request, store: SessionStore, body: bytes) -> Response:
        """Answer one call. Wrong arguments and `ToolError` are told to the model with status 422."""
        try:
            given = orjson.loads(body or b"{}")
        except orjson.JSONDecodeError as error:
            return self._refusal(f"not valid JSON ({error.msg} at column {error.colno})")
        if LONG_NUMBER.search(body):
            given = json.loads(body)
        if not isinstance(given, dict):
            return self._refusal(f"expected a JSON object, found {type(given).__name__}")
        try:
            values = self.arguments.read(given)
        except WrongArguments as error:
            return self._refusal(str(error))
        try:
            result = await self.handler.call(request, store, values)
        except ToolError as error:
            return PlainTextResponse(f"Error: {error}", status_code=422)
        return _answer(result)

    def _refusal(self, problem: str) -> Response:
        required, shared = self.parameters["required"], self.parameters.get("$defs", {})
        expected = ", ".join(
            f"{name} ({type_words(schema, shared)}{'' if name in required else ', optional'})"
            for name, schema in self.parameters["properties"].items()
        )
        return PlainTextResponse(
            f"Invalid arguments for {self.name}: {problem}. Expected: {expected or 'no arguments'}.", status_code=422
        )


def tools_of(server: object) -> list[Tool]:
    """The `@tool` methods of a server, in the order of their definition, base classes first.

    A method that replaces a base class's tool stays one, under the same name unless it is marked anew.
    """
    marks: dict[str, Any] = {}
    for cls in reversed(type(server).__mro__):
        marks |= {attribute: value for attribute, value in vars(cls).items() if hasattr(value, _MARK)}
    found: dict[str, Tool] = {}
    for attribute, value in marks.items():
        mark, method = getattr(value, _MARK), getattr(server, attribute)
        _check_hides_nothing(type(server), attribute)
        each = Tool.of(method, name=mark["name"], description=mark["description"])
        if each.name in found:
            raise SignatureError(f"{type(server).__name__} has two tools called '{each.name}'; rename one")
        found[each.name] = each
    return list(found.values())


def _check_hides_nothing(cls: type, attribute: str) -> None:
    for base in cls.__mro__:
        if base.__module__.startswith("nemo_gym.") and attribute in vars(base):
            raise SignatureError(
                f"@tool {cls.__name__}.{attribute}: this method would take the place of {base.__name__}.{attribute}; "
                f'call it otherwise and keep the tool\'s name: @tool(name="{attribute}")'
            )


def add_tool_routes(app: FastAPI, tools: Sequence[Tool], store: SessionStore) -> None:
    """Give each tool its route, and list all of them under `GET /tools`."""
    for each in tools:
        _add_route(app, each, store)
    definitions = [each.definition for each in tools]

    independent = ",".join(each.name for each in tools if each.is_independent)

    async def list_tools(response: Response) -> list[dict[str, Any]]:
        """The tools of this server, as a request lists them; a header names those that need no order."""
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


def _answer(result: Any) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, str):
        return PlainTextResponse(result)
    return Response(_json(result), media_type="application/json")


def _json(result: Any) -> bytes:
    try:
        return orjson.dumps(result, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # A model that adds long enough gets past 64 bits, where orjson ends and JSON does not.
        return json.dumps(result, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a tool returned a {type(value).__name__}, which is not JSON")
