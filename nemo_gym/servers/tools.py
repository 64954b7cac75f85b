"""From a method to a tool: its route, its JSON schema, and the answer to a call with wrong arguments."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar, overload

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from nemo_gym.errors import SignatureError, ToolError
from nemo_gym.servers.binding import Handler
from nemo_gym.servers.json_schema import type_words, without_titles
from nemo_gym.servers.sessions import SessionStore

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

RESERVED_NAMES = frozenset({
    "verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "tools", "mcp",
})  # fmt: skip
"""Routes of a resources server that are not tools: no tool may be called so, and no model may reach them.

Liveness and documentation are GET only; a tool of such a name has the POST route to itself.
"""

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")

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
    arguments: type[BaseModel]

    @classmethod
    def of(cls, method: Callable[..., Any], *, name: str, description: str | None = None) -> Tool:
        """Read a method's signature and docstring. `SignatureError` says what cannot be a tool, and why."""
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
        fields: dict[str, Any] = {}
        for parameter in handler.open_parameters:
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise SignatureError(f"{where}: '{parameter}' has no schema; name each argument")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise SignatureError(f"{where}: arguments come by name; remove the '/' behind '{parameter.name}'")
            if parameter.annotation is inspect.Parameter.empty:
                raise SignatureError(f"{where}: give the argument '{parameter.name}' a type")
            # Declared under a safe name: an argument called `schema` or `_id` must not meet pydantic's own.
            fields[f"arg_{parameter.name}"] = _field_of(parameter)
        try:
            arguments = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
            made = cls(name, description or inspect.getdoc(method) or "", handler, arguments)
            assert made.parameters
        except PydanticUserError as error:
            raise SignatureError(f"{where}: the arguments have no JSON Schema: {error.message}") from error
        return made

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        schema: dict[str, Any] = without_titles(self.arguments.model_json_schema())
        schema.setdefault("properties", {})
        schema.setdefault("required", [])
        return schema

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
        if not isinstance(given, dict):
            return self._refusal(f"expected a JSON object, found {type(given).__name__}")
        try:
            checked = self.arguments.model_validate(given)
        except ValidationError as error:
            return self._refusal("; ".join(_explain(problem) for problem in error.errors()))
        values = {
            parameter.name: getattr(checked, f"arg_{parameter.name}") for parameter in self.handler.open_parameters
        }
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

    async def list_tools() -> list[dict[str, Any]]:
        """The tools of this server, as a request lists them."""
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
    if isinstance(result, BaseModel):
        return JSONResponse(result.model_dump(mode="json"))
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


def _field_of(parameter: inspect.Parameter) -> tuple[Any, Any]:
    if isinstance(parameter.default, FieldInfo):
        return Annotated[parameter.annotation, parameter.default], Field(alias=parameter.name)
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return parameter.annotation, Field(default, alias=parameter.name)


def _explain(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"'{place}' is not an argument"
    if problem["type"] == "missing":
        return f"'{place}' is missing"
    return f"'{place}': {problem['msg']} (found {problem['input']!r:.80})"
