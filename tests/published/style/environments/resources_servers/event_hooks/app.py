import asyncio
from typing import List, Optional

from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class EventHooksResourcesServerConfig(BaseResourcesServerConfig):
    interval_s: float = 0.01


class EventHooksVerifyResponse(BaseVerifyResponse):
    ticks: int
    events: List[str]


class EventHooksResourcesServer(SimpleResourcesServer):
    config: EventHooksResourcesServerConfig

    _events: List[str] = PrivateAttr(default_factory=list)
    _ticks: int = PrivateAttr(default=0)
    _ticker: Optional[asyncio.Task] = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.on_event("startup")
        async def _startup() -> None:
            self._events.append("startup")
            self._ticker = asyncio.create_task(self._tick())

        @app.on_event("shutdown")
        async def _shutdown() -> None:
            self._ticker.cancel()
            self._events.append("shutdown")

        return app

    async def _tick(self) -> None:
        while True:
            self._ticks += 1
            await asyncio.sleep(self.config.interval_s)

    async def verify(self, body: BaseVerifyRequest) -> EventHooksVerifyResponse:
        return EventHooksVerifyResponse(
            **body.model_dump(), reward=float(self._ticks > 0), ticks=self._ticks, events=self._events
        )


if __name__ == "__main__":
    EventHooksResourcesServer.run_webserver()
