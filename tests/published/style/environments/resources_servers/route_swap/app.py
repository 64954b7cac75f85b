from typing import Any, Dict

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError, judge_failsafe
from nemo_gym.server_utils import SESSION_ID_KEY


class RouteSwapResourcesServerConfig(BaseResourcesServerConfig):
    pass


class RouteSwapVerifyRequest(BaseVerifyRequest):
    colour: str


class RouteSwapResourcesServer(SimpleResourcesServer):
    config: RouteSwapResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        # Both read raw JSON, because a row of this environment may be any object.
        app.router.routes = [
            route for route in app.router.routes if getattr(route, "path", None) not in ("/seed_session", "/verify")
        ]
        app.post("/seed_session")(self.seed_session_raw)
        app.add_api_route("/verify", judge_failsafe(self.verify), methods=["POST"])
        paths = {route.path for route in app.routes if isinstance(route, APIRoute)}
        assert "/aggregate_metrics" in paths
        return app

    async def seed_session_raw(self, request: Request, row: Dict[str, Any] = Body(...)) -> JSONResponse:
        request.session["colour"] = row.get("colour")
        return JSONResponse({"fields": sorted(row), "session_id": request.session[SESSION_ID_KEY]})

    async def verify(self, request: Request, body: RouteSwapVerifyRequest) -> BaseVerifyResponse:
        if body.colour == "invisible":
            raise JudgeError("this cannot be judged")
        reward = float(request.session.get("colour") == body.response.output_text)
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    RouteSwapResourcesServer.run_webserver()
