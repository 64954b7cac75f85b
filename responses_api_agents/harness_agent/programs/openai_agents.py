"""An agent program with OpenAI's Agents SDK (`pip install openai-agents`) that calls the environment's MCP tools."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp


async def answer(task: str) -> str:
    async with AsyncExitStack() as stack:
        servers = []
        if url := os.environ["NEMO_GYM_MCP_URL"]:
            servers = [await stack.enter_async_context(MCPServerStreamableHttp({"url": url, "timeout": 60.0}))]
        agent = Agent(name="assistant", model=os.environ["NEMO_GYM_MODEL"], mcp_servers=servers)
        ran = await Runner.run(agent, task, max_turns=50)
        return str(ran.final_output)


if __name__ == "__main__":
    # Disable tracing, because the SDK would send traces to OpenAI, which the sandbox cannot reach.
    set_tracing_disabled(True)
    sys.stdout.write(asyncio.run(answer(Path(sys.argv[1]).read_text())) + "\n")
