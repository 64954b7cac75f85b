"""From a server's routes to the tools that it offers over MCP."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import PydanticUserError

from nemo_gym.errors import SignatureError
from nemo_gym.servers.tools.json_schema import without_titles
from nemo_gym.servers.tools.tool import NAME_PATTERN, Tool

CATCH_ALL = re.compile(r"/\{[^/{}]+\}")
SHARED = "#/components/schemas/"
WAY_OUT = "Change it, or keep the route from being a tool: include_in_schema=False"


@dataclass(frozen=True)
class McpTool:
    """A tool as it is offered over MCP, and the route that a call of it is passed to."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments, an object."""
    path: str


@dataclass(frozen=True)
class CatchAll:
    """A route that takes calls of any tool, such as `/{tool_name}`: only its author knows which there are."""

    path: str

    def tool(self, name: str, description: str = "", parameters: Mapping[str, Any] | None = None) -> McpTool:
        """A tool that this route answers."""
        schema = {"type": "object", "properties": {}, **(parameters or {})}
        return McpTool(name, description, schema, CATCH_ALL.sub(f"/{name}", self.path))


@dataclass(frozen=True)
class Harvest:
    """What a server's routes offer."""

    tools: list[McpTool]
    catch_all: CatchAll | None


def harvest(app: FastAPI, own: Sequence[Tool], *, not_tools: Collection[str]) -> Harvest:
    """Every POST route of an app, but those in `not_tools`, as a tool; `own` are the server's `@tool` methods.

    Its name is the path, its description the docstring, its arguments are the body. Raises `SignatureError` for a
    route that cannot be called with a name and a JSON object alone.
    """
    try:
        document = get_openapi(title="tools", version="", routes=app.routes)
    except PydanticUserError as error:
        raise SignatureError(f"expose_tools_over_mcp: a route has no JSON Schema: {error.message}") from error
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
        raise SignatureError(f"expose_tools_over_mcp: {' and '.join(catch_alls)} each take any tool; keep one")
    return Harvest(tools, CatchAll(catch_alls[0]) if catch_alls else None)


def by_name(tools: Iterable[McpTool], server: str, *, reserved: Collection[str]) -> dict[str, McpTool]:
    """The tools by their names. Raises `SignatureError` where they cannot be offered under these."""
    found: dict[str, McpTool] = {}
    for each in tools:
        if not NAME_PATTERN.fullmatch(each.name) or each.name in reserved:
            raise SignatureError(
                f"expose_tools_over_mcp: {each.name!r} cannot be a tool's name: letters, digits, '_' and '-' only, "
                f"64 at most, and not one of {', '.join(sorted(reserved))}"
            )
        if each.name in found:
            raise SignatureError(f"expose_tools_over_mcp: {server} has two tools called '{each.name}'")
        found[each.name] = each
    if not found:
        raise SignatureError(
            f"expose_tools_over_mcp: {server} has no tool. Mark a method with @tool, or take the setting away"
        )
    return found


def _tool_of(path: str, operation: dict[str, Any], shared: dict[str, Any]) -> McpTool:
    name = path.removeprefix("/")
    if not NAME_PATTERN.fullmatch(name):
        raise _refused(path, "a tool's name is its path, one segment of letters, digits, '_' and '-', 64 at most")
    _check_parameters(path, operation)
    return McpTool(name, operation.get("description", ""), _arguments(path, operation, shared), path)


def _check_parameters(path: str, operation: dict[str, Any]) -> None:
    for parameter in operation.get("parameters", []):
        place, name = parameter["in"], parameter["name"]
        if place == "query" or (place in ("header", "cookie") and parameter.get("required")):
            raise _refused(path, f"it asks for the {place} parameter '{name}', and a call brings nothing but its body")


def _arguments(path: str, operation: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {"type": "object", "properties": {}}
    body = operation["requestBody"]["content"].get("application/json")
    if body is None:
        raise _refused(path, f"its body is {', '.join(operation['requestBody']['content'])}, and a call's is JSON")
    schema = _self_contained(body.get("schema", {}), shared)
    if schema.get("type") != "object":
        raise _refused(path, "its body is not one model: a call's arguments are one JSON object")
    return schema


def _self_contained(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """A schema that brings what it refers to along, and is no reference itself."""
    definitions: dict[str, Any] = {}

    def moved(node: Any) -> Any:
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
    return dict(without_titles({**whole, "$defs": definitions} if definitions else whole))


def _refused(path: str, reason: str) -> SignatureError:
    return SignatureError(f"expose_tools_over_mcp: POST {path} cannot be a tool: {reason}. {WAY_OUT}")
