import json
from typing import Any, Callable, Dict

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class AnyToolResourcesServerConfig(BaseResourcesServerConfig):
    pass


class AnyToolRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class AnyToolVerifyRequest(AnyToolRunRequest, BaseVerifyRequest):
    pass


class AnyToolVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


def _greet(whom: str) -> str:
    return f"Good morning, {whom}."


def _count(letters: str) -> Dict[str, int]:
    return {"count": len(letters)}


class AnyToolResourcesServer(SimpleResourcesServer):
    config: AnyToolResourcesServerConfig
    calls: Dict[str, list] = Field(default_factory=dict)

    functions: Dict[str, Callable[..., Any]] = {"greet": _greet, "count": _count}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.route_to_python_function)
        return app

    async def route_to_python_function(self, tool_name: str, request: Request) -> PlainTextResponse:
        arguments = await request.json()
        self.calls.setdefault(request.session[SESSION_ID_KEY], []).append(tool_name)
        if tool_name not in self.functions:
            return PlainTextResponse(json.dumps({"error": f"Tool {tool_name} not found"}))
        try:
            return PlainTextResponse(json.dumps(self.functions[tool_name](**arguments)))
        except TypeError as error:
            return PlainTextResponse(json.dumps({"error": str(error)}), status_code=400)

    async def verify(self, request: Request, body: AnyToolVerifyRequest) -> AnyToolVerifyResponse:
        called = [
            {"name": item.name, "arguments": json.loads(item.arguments)}
            for item in body.response.output
            if item.type == "function_call"
        ]
        expected = body.ground_truth
        seen = self.calls.pop(request.session[SESSION_ID_KEY], [])
        return AnyToolVerifyResponse(
            **body.model_dump(), reward=float(called == expected), seen=seen, num_calls=len(called)
        )


if __name__ == "__main__":
    AnyToolResourcesServer.run_webserver()
