"""Play plans with openenv's own clients, for test_also_serve.py. Prints the outcome of each plan as JSON."""

import asyncio
import json
import sys

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient


async def by_steps(url, headers, plan):
    async with GenericEnvClient(base_url=url, headers=headers) as env:
        begun = await env.reset(**plan["reset"])
        for name, arguments in plan["calls"]:
            step = await env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
            assert (step.reward, step.done) == (None, False), step
        last = await env.step({"type": "submit", "answer": plan["answer"]})
        state = await env.state()
        try:
            await env.step({"type": "submit", "answer": plan["answer"]})
            problem = ""
        except RuntimeError as error:
            problem = str(error)
        assert begun.observation["prompt"]
        return {"reward": last.reward, "done": last.done, "steps": state["step_count"], "problem": problem}


async def over_mcp(url, headers, plan):
    async with MCPToolClient(base_url=url, headers=headers) as env:
        await env.reset(**plan["reset"])
        tools = [each.name for each in await env.list_tools()]
        for name, arguments in plan["calls"]:
            assert name in tools
            await env.call_tool(name, **arguments)
        last = await env.step(CallToolAction(tool_name="submit", arguments={"answer": plan["answer"]}))
        return {"reward": last.reward, "done": last.done, "tools": len(tools)}


async def main(url, token, plans):
    headers = {"Authorization": f"Bearer {token}"}
    played = [by_steps(url, headers, plan) for plan in plans] + [over_mcp(url, headers, plan) for plan in plans]
    print(json.dumps(await asyncio.gather(*played)))  # noqa: T201 - read by the test


asyncio.run(main(sys.argv[1], sys.argv[2], json.load(sys.stdin)))
