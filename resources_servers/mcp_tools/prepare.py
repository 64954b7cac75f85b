"""Write a row for each tool of an MCP server that can be called without arguments, to try the server out.

python resources_servers/mcp_tools/prepare.py --address http://127.0.0.1:3001/mcp --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from nemo_gym import DataError, RolloutError, Tool, run_prepare
from nemo_gym.jsonl import write_rows
from resources_servers.mcp_tools.session import Toolbox
from resources_servers.mcp_tools.settings import Limits, McpServer

TASK = "Call the tool {name} once, without arguments. Then answer with the line: Answer: done"


def prepare(output: Path, address: str, split: str | None = None) -> Path:
    """Write the rows and return their path.

    address: the command line or the URL of the MCP server
    split: MCP servers have no splits

    Raises `DataError` if the server cannot be used, or if all of its tools need arguments.
    """
    try:
        tools = asyncio.run(_tools(McpServer.model_validate(address)))
    except (RolloutError, ValueError) as error:
        raise DataError(f"{address}: {error}") from error
    names = [each.name for each in tools if not each.parameters["required"]]
    if not names:
        raise DataError(f"{address}: an MCP server has tools, but no tasks. Give rows of your own with --input.")
    tasks = [(name, [{"role": "user", "content": TASK.format(name=name)}]) for name in names]
    rows = [
        {"responses_create_params": {"input": asked}, "expected_calls": [{"name": name}], "expected_answer": "done"}
        for name, asked in tasks
    ]
    write_rows(output, rows)
    return output


async def _tools(server: McpServer) -> list[Tool]:
    toolbox = Toolbox()
    try:
        await toolbox.open({"server": server}, Limits(), {})
        return list(toolbox.tools.values())
    finally:
        await toolbox.close()


if __name__ == "__main__":
    run_prepare(prepare)
