import logging
from typing import Any, Dict, List

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.rollout_correlation import RolloutContextMiddleware, current_rollout_id
from nemo_gym.server_utils import get_response_json, raise_for_status

LOG = logging.getLogger(__name__)


class MarkedRolloutsResourcesServerConfig(BaseResourcesServerConfig):
    other_server: ResourcesServerRef


class OutOfPaper(Exception):
    pass


class MarkedVerifyResponse(BaseVerifyResponse):
    rollout_id: str | None
    total_of_other: int
    paths: List[str]


class MarkedRolloutsResourcesServer(SimpleResourcesServer):
    config: MarkedRolloutsResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.add_middleware(RolloutContextMiddleware)
        app.state.paths = []

        @app.middleware("http")
        async def note_path(request: Request, call_next):
            app.state.paths.append(request.url.path)
            response = await call_next(request)
            response.headers["x-noted"] = str(len(app.state.paths))
            return response

        @app.exception_handler(OutOfPaper)
        async def out_of_paper(request: Request, error: OutOfPaper) -> JSONResponse:
            return JSONResponse({"detail": "out of paper"}, status_code=503)

        @app.get("/paper")
        async def paper() -> Dict[str, Any]:
            raise OutOfPaper

        self._app = app
        return app

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        LOG.info("seeded %s", current_rollout_id())
        return BaseSeedSessionResponse()

    async def verify(self, body: BaseVerifyRequest) -> MarkedVerifyResponse:
        name = self.config.other_server.name
        seeded = await self.server_client.post(server_name=name, url_path="/seed_session", json={"first_total": 3})
        await raise_for_status(seeded)
        added = await self.server_client.post(
            server_name=name, url_path="/add", json={"number": 4}, cookies=seeded.cookies
        )
        await raise_for_status(added)
        total = (await get_response_json(added))["total"]
        return MarkedVerifyResponse(
            **body.model_dump(),
            reward=float(total == 7),
            rollout_id=current_rollout_id(),
            total_of_other=total,
            paths=self._app.state.paths,
        )


if __name__ == "__main__":
    MarkedRolloutsResourcesServer.run_webserver()
