"""Adapter for versions 1 and 2 of the MCP SDK. Handlers return the protocol's results as JSON objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from nemo_gym.errors import ConfigError
from nemo_gym.version import __version__

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

ListTools = Callable[[Request], Awaitable[Mapping[str, object]]]
CallTool = Callable[[Request, str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
SchemaOf = Callable[[str], Mapping[str, object] | None]


def sdk_server(name: str, list_tools: ListTools, call_tool: CallTool, schema_of: SchemaOf) -> Server[Any]:
    """Return the SDK's server for these handlers. Raise `ConfigError` if the SDK is not installed."""
    try:
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise ConfigError(
            f"{name}: expose_tools_over_mcp is true, but the MCP SDK (mcp>=1.28.1,<3) is not installed: pip install "
            "'nemo-gym[mcp]'"
        ) from error
    has_decorators = hasattr(Server, "list_tools")  # Only version 1 of the SDK has decorators.
    make = _of_version_1 if has_decorators else _of_version_2
    return make(name, list_tools, call_tool, schema_of)


def invalid_request(problem: str) -> Exception:
    """Return the exception that the SDK converts to a JSON-RPC error response."""
    import mcp
    from mcp import types

    if hasattr(mcp, "MCPError"):
        return mcp.MCPError(types.INVALID_REQUEST, problem)
    of_version_1: type[Exception] = vars(mcp)["McpError"]
    return of_version_1(types.ErrorData(code=types.INVALID_REQUEST, message=problem))


def _of_version_1(name: str, list_tools: ListTools, call_tool: CallTool, _: SchemaOf) -> Server[Any]:
    from mcp import types
    from mcp.server.lowlevel import Server

    server: Any = Server(name, version=__version__)
    # Typed as `Any`, because type checkers see version 2, in which this name is a union.
    result_of: Any = types.ServerResult

    async def on_list(_: object) -> object:
        found = await list_tools(server.request_context.request)
        return result_of(types.ListToolsResult.model_validate(found))

    async def on_call(wanted: Any) -> object:
        params = wanted.params
        result = await call_tool(server.request_context.request, params.name, params.arguments or {})
        return result_of(types.CallToolResult.model_validate(result))

    # Do not use the SDK's decorators, because they check arguments and turn the handlers' errors into results.
    server.request_handlers |= {types.ListToolsRequest: on_list, types.CallToolRequest: on_call}
    return server  # type: ignore[no-any-return]


def _of_version_2(name: str, list_tools: ListTools, call_tool: CallTool, schema_of: SchemaOf) -> Server[Any]:
    from mcp import types
    from mcp.server.lowlevel import Server

    async def on_list(context: Any, _: object) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(await list_tools(context.request))

    async def on_call(context: Any, wanted: Any) -> types.CallToolResult:
        result = await call_tool(context.request, wanted.name, wanted.arguments or {})
        return types.CallToolResult.model_validate(result)

    return Server(
        name, version=__version__, on_list_tools=on_list, on_call_tool=on_call, get_tool_input_schema=schema_of
    )
