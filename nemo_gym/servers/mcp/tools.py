"""The tools that a server offers over MCP, found in its routes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import PydanticUserError

from nemo_gym.errors import SignatureError
from nemo_gym.jsonl import JsonObject
from nemo_gym.servers.tools.json_schema import without_titles
from nemo_gym.servers.tools.tool import NAME_PATTERN, Tool

CATCH_ALL = re.compile(r"/\{[^/{}]+\}")
SHARED = "#/components/schemas/"
ADVICE = "Change the route, or exclude it from the tools with include_in_schema=False"


@dataclass(frozen=True)
class McpTool:
    """A tool as offered over MCP, and the route that handles its calls."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """The JSON Schema of the arguments. Its type is `object`."""
    path: str


@dataclass(frozen=True)
class CatchAll:
    """A route such as `/{tool_name}` that handles calls of any tool. Only the route's author knows the tools."""

    path: str

    def tool(self, name: str, description: str = "", parameters: Mapping[str, object] | None = None) -> McpTool:
        """Return a tool called `name` whose calls this route handles."""
        schema = {"type": "object", "properties": {}, **(parameters or {})}
        return McpTool(name, description, schema, CATCH_ALL.sub(f"/{name}", self.path))


class Harvest(NamedTuple):
    """The tools found in a server's routes."""

    tools: list[McpTool]
    catch_all: CatchAll | None


def harvest(app: FastAPI, own: Sequence[Tool], *, not_tools: Collection[str]) -> Harvest:
    """Return the POST routes of an app as tools, except those in `not_tools`. `own` has the tools marked with `@tool`.

    A tool gets its name from the path, its description from the docstring, and its arguments from the body. Raise
    `SignatureError` for a route that cannot be a tool, such as one with a query parameter.
    """
    try:
        document = get_openapi(title="tools", version="", routes=app.routes)
    except PydanticUserError as error:
        raise SignatureError(f"expose_tools_over_mcp: cannot create a route's JSON Schema: {error.message}") from error
    shared = document.get("components", {}).get("schemas", {})
    marked = {each.name: each for each in own}
    tools: list[McpTool] = []
    catch_alls: list[str] = []
    for path, methods in document.get("paths", {}).items():
        name = path.removeprefix("/")
        if "post" not in methods or name in not_tools:
            continue
        if name in marked:
            tools.append(McpTool(name, marked[name].description, marked[name].parameters, path))
        elif CATCH_ALL.fullmatch(path):
            _check_parameters(path, methods["post"])
            catch_alls.append(path)
        else:
            tools.append(_tool_of(path, methods["post"], shared))
    if len(catch_alls) > 1:
        raise SignatureError(f"expose_tools_over_mcp: {' and '.join(catch_alls)} each accept any tool. Keep one")
    return Harvest(tools, CatchAll(catch_alls[0]) if catch_alls else None)


def by_name(tools: Iterable[McpTool], server: str, *, reserved: Collection[str]) -> dict[str, McpTool]:
    """Index the tools by name. Raise `SignatureError` for an invalid, reserved or duplicate name."""
    found: dict[str, McpTool] = {}
    for each in tools:
        if not NAME_PATTERN.fullmatch(each.name) or each.name in reserved:
            raise SignatureError(
                f"expose_tools_over_mcp: {each.name!r} is not a valid tool name. Use at most 64 letters, digits, "
                f"'_' and '-', and none of {', '.join(sorted(reserved))}"
            )
        if each.name in found:
            raise SignatureError(f"expose_tools_over_mcp: {server} has two tools called '{each.name}'. Rename one")
        found[each.name] = each
    if not found:
        raise SignatureError(
            f"expose_tools_over_mcp: {server} does not have tools. Mark a method with @tool, or remove the setting"
        )
    return found


def _tool_of(path: str, operation: Mapping[str, Any], shared: Mapping[str, object]) -> McpTool:
    name = path.removeprefix("/")
    if not NAME_PATTERN.fullmatch(name):
        raise _rejected(path, "the path must be one segment of at most 64 letters, digits, '_' and '-'")
    _check_parameters(path, operation)
    return McpTool(name, operation.get("description", ""), _arguments(path, operation, shared), path)


def _check_parameters(path: str, operation: Mapping[str, Any]) -> None:
    for parameter in operation.get("parameters", []):
        place, name = parameter["in"], parameter["name"]
        if place == "query" or (place in ("header", "cookie") and parameter.get("required")):
            raise _rejected(path, f"the route has the {place} parameter '{name}', but a tool call has only a body")


def _arguments(path: str, operation: Mapping[str, Any], shared: Mapping[str, object]) -> Mapping[str, object]:
    if "requestBody" not in operation:
        return {"type": "object", "properties": {}}
    body = operation["requestBody"]["content"].get("application/json")
    if body is None:
        raise _rejected(path, f"the body is {', '.join(operation['requestBody']['content'])}, not JSON")
    schema = _self_contained(body.get("schema", {}), shared)
    if schema.get("type") != "object":
        raise _rejected(path, "the body must be a pydantic model, because a tool call's arguments are a JSON object")
    return schema


def _self_contained(schema: Mapping[str, Any], shared: Mapping[str, object]) -> JsonObject:
    """Return a copy of a schema, with all schemas that it refers to. The copy's root is not a reference."""
    definitions: JsonObject = {}

    def moved(node: object) -> object:
        if isinstance(node, list):
            return [moved(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        target = node.get("$ref")
        if not isinstance(target, str) or not target.startswith(SHARED):
            return {key: moved(value) for key, value in node.items()}
        name = target.removeprefix(SHARED)
        if name not in definitions:
            definitions[name] = None
            definitions[name] = moved(shared[name])
        return {**node, "$ref": f"#/$defs/{name}"}

    root = schema.get("$ref", "").removeprefix(SHARED)
    whole = moved(shared[root] if root else schema)
    assert isinstance(whole, dict)
    return without_titles({**whole, "$defs": definitions} if definitions else whole)


def _rejected(path: str, reason: str) -> SignatureError:
    return SignatureError(f"expose_tools_over_mcp: POST {path} cannot be a tool: {reason}. {ADVICE}")
