"""A rollout's connection to one MCP server: connect, list the tools, call them, close."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, Implementation, Tool, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from nemo_gym import EnvironmentFailed, Overloaded, RolloutError, ToolError, __version__
from resources_servers.mcp_tools.child import Child, in_sandbox
from resources_servers.mcp_tools.results import Output, output_of
from resources_servers.mcp_tools.settings import Limits, McpServer, filled_in

ResultT = TypeVar("ResultT")

MOST_PAGES = 100
CLOSE_S = 10.0
CONNECT_S = 20.0
BUSY = (429, 503)
LONGEST_PROBLEM = 2_000
MEBIBYTE = 2**20
LISTING = "its list of tools (tool_timeout_s)"
EVENTS = "text/event-stream"


class Connection:
    """An MCP server as one rollout sees it: its process, or its session over HTTP."""

    def __init__(self, name: str, server: McpServer, limits: Limits, folder: str) -> None:
        """`folder` is the rollout's own folder, the working directory of a process."""
        self.name, self.server, self.limits, self.folder = name, server, limits, folder
        self.is_changed = False
        """Whether the server has announced another list of tools since the last call of `tools`."""
        self._most_bytes = int(limits.largest_message_mb * MEBIBYTE)
        self._child: Child | None = None
        self._http_status = 200
        self._closing = asyncio.Event()
        self._problem = ""
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. Raise `EnvironmentFailed`, or `Overloaded`, if the server does not answer."""
        # One task opens and closes the SDK's client, as anyio demands. Each call of a rollout has its own task.
        self._task = asyncio.create_task(self._hold())
        await self._within(self.limits.start_timeout_s, self._client, "its start (start_timeout_s)")

    async def tools(self) -> list[Tool]:
        """Return the server's current tools. Raise `EnvironmentFailed` if it does not list them."""
        self.is_changed = False
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            listing = (await self._client).list_tools(cursor=cursor)
            try:
                page = await self._within(self.limits.tool_timeout_s, listing, LISTING)
            except MCPError as error:
                raise self._failure(f"{LISTING}: {error.message}") from error
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise self._failure(f"{LISTING} has more than {MOST_PAGES} pages")

    async def call(self, tool: str, arguments: dict[str, Any]) -> Output:
        """Call a tool. Raise `ToolError` for an error that the server reports, else `EnvironmentFailed`."""
        calling = (await self._client).call_tool(tool, arguments)
        try:
            result = await self._within(self.limits.tool_timeout_s, calling, f"the tool '{tool}' (tool_timeout_s)")
        except MCPError as error:
            # It is for the model, which may have named a wrong argument.
            raise ToolError(self.server.hidden(error.message[:LONGEST_PROBLEM])) from error
        return output_of(result, self.server.hidden)

    async def close(self) -> None:
        """Close the connection, and end the process with its children. Waits are bounded."""
        self._closing.set()
        if self._task is None:
            return
        if self._client.done() and not self._client.cancelled():
            await asyncio.wait({self._task}, timeout=CLOSE_S)
        # A task that still connects, or waits for the end of something else, does not notice that it is closing.
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_S)

    async def _within(self, limit_s: float, asked: Awaitable[ResultT], what: str) -> ResultT:
        try:
            async with asyncio.timeout(limit_s):
                return await asked
        except TimeoutError as error:
            raise self._failure(f"no answer within {limit_s:g} s: {what}") from error
        except MCPError as error:
            # Status 400 is also the status of errors that the server reports on purpose.
            if error.code == CONNECTION_CLOSED or self._http_status > 400:
                raise self._failure(f"{what}: {error.message}") from error
            raise
        except (RuntimeError, ValueError) as error:
            # The SDK raises these for results that break the protocol or the tool's own output schema.
            raise self._failure(f"{what}: {error}") from error

    async def _hold(self) -> None:
        """Keep the connection open until `close` is called."""
        try:
            async with AsyncExitStack() as stack:
                streams = await self._http(stack) if self.server.command is None else self._process()
                # Do not cache lists, because they are asked for only after they have changed.
                info = Implementation(name="nemo_gym", version=__version__)
                connecting = Client(streams, message_handler=self._hear, client_info=info, cache=None)
                client = await stack.enter_async_context(connecting)
                self._client.set_result(client)
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    listening = asyncio.create_task(self._listen(client))
                    stack.callback(listening.cancel)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - the SDK may raise anything, in groups: one rollout has failed
            self._problem = _first_in(error)
            if not self._client.done():
                self._client.set_exception(self._failure("it cannot be used"))

    def _process(self) -> Any:
        command = [filled_in(each, self.folder) for each in self.server.command or []]
        if self.server.sandbox is not None:
            command = in_sandbox(command, self.folder, self.server.sandbox)
        env = {name: filled_in(value, self.folder) for name, value in self.server.env.items()}
        self._child = Child(command, env, self.folder, self._most_bytes)
        return self._child.streams()

    async def _http(self, stack: AsyncExitStack) -> Any:
        headers = {**self.server.headers, "accept-encoding": "identity"}
        timeout = httpx2.Timeout(CONNECT_S, read=None)
        client = httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [self._bound]})
        await stack.enter_async_context(client)
        return streamable_http_client(self.server.url or "", http_client=client, max_sse_event_size=self._most_bytes)

    async def _bound(self, response: httpx2.Response) -> None:
        """Limit the size of a reply. The SDK itself limits each event of a stream."""
        if response.request.method == "POST":
            self._http_status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError("the reply is compressed, although the request forbids it")
        if not response.headers.get("content-type", "").startswith(EVENTS):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._most_bytes)

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.is_changed = True

    async def _listen(self, client: Client) -> None:
        """Notice changes of the list of tools. Since 2026-07-28, servers announce them only on request."""
        # A server need not offer this, and the loss of the connection is noticed by the next call.
        with suppress(MCPError, RuntimeError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.is_changed = True

    def _failure(self, problem: str) -> RolloutError:
        causes = [problem, self._problem]
        if self._child is not None:
            causes += [self._child.problem, self._child.errors.decode("utf-8", "replace").strip()]
        if self._http_status > 400:
            causes.append(f"HTTP status {self._http_status}")
        text = f"mcp_servers.{self.name}: {'; '.join(filter(None, causes))}"
        kind = Overloaded if self._http_status in BUSY else EnvironmentFailed
        return kind(self.server.hidden(text)[:LONGEST_PROBLEM])


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._stream, self._left = stream, most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError("the reply is longer than largest_message_mb")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _first_in(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
