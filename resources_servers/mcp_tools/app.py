"""Offer the tools of other people's MCP servers, and grade the answer or the calls that a row expects."""

from functools import cached_property
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ConfigDict, Field

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.mcp_tools.grading import Expected, has_answer, makes_calls
from resources_servers.mcp_tools.session import SESSION_TOOLS, Offered, Rollout, Toolbox
from resources_servers.mcp_tools.settings import Limits, McpServers


class McpToolsConfig(Limits, BaseResourcesServerConfig):
    """The server's settings: the MCP servers of every rollout, and their limits."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    mcp_servers: McpServers = Field(default_factory=dict)


class SeedRequest(BaseSeedSessionRequest, Expected):
    """The row with its expected result, its own files and its own servers."""

    files: dict[str, str] = Field(default_factory=dict)
    """The texts of files in the rollout's folder, by their relative path."""
    mcp_servers: McpServers = Field(default_factory=dict)


class VerifyRequest(BaseVerifyRequest, Expected):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")


class McpToolsServer(SimpleResourcesServer):
    """A server that opens the MCP servers of each rollout, and passes the model's calls on to them."""

    config: McpToolsConfig
    KEY_METRICS = ("mean/reward", "mean/input_tokens", "mean/output_tokens", "mean/total_tokens")

    @cached_property
    def offered(self) -> Offered:
        config = self.config
        return Offered(config.name, config.mcp_servers, config, rows_may_add=config.rows_may_add_servers)

    def setup_webserver(self) -> FastAPI:
        """Return the app. A POST to any other path calls the tool of that name."""
        app = super().setup_webserver()
        app.get("/session_tools")(self.session_tools)
        app.post("/{tool_name}")(self.call_tool)
        return app

    async def seed_session(self, body: SeedRequest, rollout: Rollout) -> Response:
        """Start the servers of the block and of the row."""
        self._check(body)
        if not body.mcp_servers and not self.config.mcp_servers:
            raise self.offered.invalid("neither the config nor the row has mcp_servers. Add one")
        rollout.toolbox = Toolbox()
        await self.offered.open(rollout.toolbox, body.mcp_servers, body.files)
        response = JSONResponse({})
        response.set_cookie(SESSION_TOOLS, rollout.toolbox.version)
        return response

    async def session_tools(self, request: Request) -> list[dict[str, Any]]:
        """Return the current tools of the session, as a request lists them."""
        return self._toolbox(request).definitions

    async def call_tool(self, request: Request, tool_name: str) -> Response:
        """Call a tool of the session."""
        toolbox = self._toolbox(request)
        tool = toolbox.tools.get(tool_name)
        if tool is None:
            return PlainTextResponse(f"Unknown tool '{tool_name}'.", status_code=422)
        with self.sessions.in_use(request.session[SESSION_ID_KEY]):
            response = await tool.call(request, self.sessions, await request.body())
            if await toolbox.refresh():
                response.set_cookie(SESSION_TOOLS, toolbox.version)
        return response

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        """Reward a response that has all that its row expects."""
        self._check(body)
        found: dict[str, float] = {}
        row: dict[str, Any] = {}
        if body.expected_answer is not None:
            found["answer_correct"] = float(has_answer(body.response, body.expected_answer))
        if body.expected_calls is not None:
            found["calls_correct"] = float(makes_calls(body.response, body.expected_calls))
            # Exclude defaults, because the reply must contain the row unchanged.
            row["expected_calls"] = [each.model_dump(exclude_unset=True) for each in body.expected_calls]
        return BaseVerifyResponse.grade(body, reward=min(found.values()), **found, **row)

    def _check(self, row: Expected) -> None:
        if row.expected_answer is None and row.expected_calls is None:
            raise self.offered.invalid(
                "the row has neither expected_answer nor expected_calls, so that it cannot be graded. Add one of them"
            )

    def _toolbox(self, request: Request) -> Toolbox:
        return self.sessions.get(request.session[SESSION_ID_KEY], Rollout).opened(self.config.name)


if __name__ == "__main__":
    McpToolsServer.run_webserver()
