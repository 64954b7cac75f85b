"""The MCP servers of one rollout, and their tools under names that do not clash."""

import asyncio
import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from nemo_gym import EnvironmentFailed, InvalidTask, OutOfTurn, SessionState, Tool, is_callable_name
from resources_servers.mcp_tools.settings import Limits, McpServers

SESSION_TOOLS = "nemo_gym_session_tools"
"""The cookie by which `simple_agent` learns that `GET /session_tools` has changed."""
LONGEST_NAME = 64
DIGEST = 8


@dataclass(frozen=True)
class Unchecked:
    """Arguments that the MCP server checks itself. A schema from elsewhere may refer to any URL."""

    schema: Mapping[str, Any]

    def read(self, given: Mapping[str, object]) -> dict[str, object]:
        return {"arguments": given}


class Toolbox:
    """The open servers of a rollout, its folder, and its tools by the name that the model sees."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken` are names that tools must not have."""
        self.taken = frozenset(taken)
        self.folder = tempfile.mkdtemp(prefix="nemo_gym-mcp-")
        self.tools: dict[str, Tool] = {}
        self._connections: list[Any] = []

    @property
    def definitions(self) -> list[Any]:
        """The tools as a request lists them."""
        return [each.definition for each in self.tools.values()]

    @property
    def version(self) -> str:
        """A text that changes with the list of tools."""
        return _digest(orjson.dumps(self.definitions, option=orjson.OPT_SORT_KEYS))

    async def open(self, servers: McpServers, limits: Limits, files: Mapping[str, str]) -> None:
        """Write the rollout's files, start all servers, and list their tools.

        Raise the failure of the first server that cannot be used, and `InvalidTask` for a file outside the folder.
        """
        try:
            # Import this here, because the SDK is an optional extra.
            from resources_servers.mcp_tools.connection import Connection
        except ImportError as error:
            raise EnvironmentFailed("the MCP SDK (mcp>=2,<3) is not installed: pip install 'nemo-gym[mcp]'") from error
        await asyncio.to_thread(_write, self.folder, files)
        self._connections = [Connection(name, server, limits, self.folder) for name, server in servers.items()]
        for result in await asyncio.gather(*(each.open() for each in self._connections), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await self._list_tools()

    async def refresh(self) -> bool:
        """List the tools again if a server has announced a change. Return whether it has."""
        is_changed = any(each.is_changed for each in self._connections)
        if is_changed:
            await self._list_tools()
        return is_changed

    async def close(self) -> None:
        """Close the servers and remove the folder."""
        await asyncio.gather(*(each.close() for each in self._connections))
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _list_tools(self) -> None:
        listed = [(each, tool) for each in self._connections for tool in await each.tools()]
        often = Counter(tool.name for _, tool in listed)
        found: dict[str, Tool] = {}
        for server, tool in listed:
            is_usable = (
                often[tool.name] == 1 and is_callable_name(tool.name) and tool.name not in self.taken | {*found}
            )
            name = tool.name if is_usable else _prefixed(server.name, tool.name, self.taken | {*found})
            made = Tool.of(_call(server, tool.name), name=name, description=tool.description, parameters={})
            found[name] = replace(made, arguments=Unchecked({"properties": {}, "required": [], **tool.input_schema}))
        self.tools = found


class Rollout(SessionState):
    """The servers and tools of a rollout, once its session is seeded."""

    toolbox: Toolbox | None = None
    own_tools: list[Any] = Field(default_factory=list)
    """The tools that the row lists, if they join those of the servers."""

    def opened(self, server: str) -> Toolbox:
        """Return the toolbox. Raise `OutOfTurn` if the session of this resources server has not begun."""
        if self.toolbox is None:
            raise OutOfTurn(f"{server}: this session has not begun. POST /seed_session begins one.")
        return self.toolbox

    async def close(self) -> None:
        if self.toolbox is not None:
            await self.toolbox.close()


class Offered:
    """The MCP servers of a block, which each rollout starts for itself, together with those of its row."""

    def __init__(self, name: str, servers: McpServers, limits: Limits, *, rows_may_add: bool) -> None:
        """`name` is that of the block, for messages."""
        self.name, self.servers, self.limits, self.rows_may_add = name, servers, limits, rows_may_add
        self._gate = asyncio.Semaphore(limits.concurrent_starts)

    async def open(self, toolbox: Toolbox, added: McpServers, files: Mapping[str, str]) -> None:
        """Start the servers of the block and those that the row adds. Raise `InvalidTask` if the row must not."""
        if added and not self.rows_may_add:
            raise self.invalid("the row has mcp_servers. Set rows_may_add_servers: true if you trust its rows")
        if both := sorted(added.keys() & self.servers.keys()):
            raise self.invalid(f"mcp_servers.{both[0]} is in the config, too. Rename the row's server")
        # The time limit of each start also bounds the wait for it.
        async with self._gate:
            await toolbox.open({**self.servers, **added}, self.limits, files)

    def invalid(self, problem: str) -> InvalidTask:
        """Return the error for a row that cannot be played."""
        return InvalidTask(f"{self.name}: {problem}.", server=self.name)


def _write(scratch: str, files: Mapping[str, str]) -> None:
    folder = Path(scratch).resolve()
    for name, text in files.items():
        path = (folder / name).resolve()
        if folder not in path.parents:
            raise InvalidTask(f"files: '{name}' is not a path in the rollout's folder. Fix the row.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    # A process in a sandbox may run as another user.
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o777)


def _prefixed(server: str, tool: str, taken: Collection[str]) -> str:
    """Return a name for a tool whose own name is not unique, or not allowed."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
    if len(name) <= LONGEST_NAME and name not in taken:
        return name
    return f"{name[: LONGEST_NAME - DIGEST - 1]}_{_digest(f'{tool} {len(taken)}'.encode())}"


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGEST]


def _call(server: Any, tool: str) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    async def call(arguments: dict[str, Any]) -> Any:
        return await server.call(tool, arguments)

    return call
