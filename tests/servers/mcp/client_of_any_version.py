"""Call a server's tools with the installed MCP SDK: client_of_any_version.py URL HEADERS MODE, with JSON headers."""

import asyncio
import json
import sys


async def play(url, headers, mode):
    """Return the version of the protocol, the names of the tools, and the results of calls."""
    try:
        import httpx2
        from mcp import Client, MCPError
        from mcp.client.streamable_http import streamable_http_client
    except ImportError:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        async with (
            streamablehttp_client(url, headers=headers) as (reads, writes, _),
            ClientSession(reads, writes) as session,
        ):
            version = (await session.initialize()).protocolVersion
            return [version, await results_of(session, "isError")]
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        results = await results_of(client, "is_error")
        try:
            async with asyncio.timeout(20), client.listen(tools_list_changed=True) as changes:
                await anext(changes)
        except (MCPError, RuntimeError) as error:
            results.append(type(error).__name__)
        return [client.protocol_version, results]


async def results_of(session, error_field):
    tools = [each.name for each in (await session.list_tools()).tools]
    answers = [await session.call_tool(name, given) for name, given in [("add", {"by": 2}), ("add", {}), ("read", {})]]
    return [tools, *([each.content[0].text, getattr(each, error_field)] for each in answers)]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(play(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))))  # noqa: T201
