import asyncio
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Optional

from fastapi import FastAPI

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from resources_servers.spawned_pool.graders import count_letters


class SpawnedPoolConfig(BaseResourcesServerConfig):
    start_method: str = "spawn"


class SpawnedPoolVerifyRequest(BaseVerifyRequest):
    expected_count: int


class SpawnedPoolVerifyResponse(SpawnedPoolVerifyRequest, BaseVerifyResponse):
    is_other_process: bool


def work(text: str):
    return os.getpid(), count_letters(text)


class SpawnedPoolResourcesServer(SimpleResourcesServer):
    config: SpawnedPoolConfig
    pool: Optional[ProcessPoolExecutor] = None

    model_config = {"arbitrary_types_allowed": True}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.on_startup.append(self._open)
        app.router.on_shutdown.append(self._close)
        return app

    async def _open(self) -> None:
        self.pool = ProcessPoolExecutor(
            max_workers=1, mp_context=multiprocessing.get_context(self.config.start_method)
        )

    def _close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    async def verify(self, body: SpawnedPoolVerifyRequest) -> SpawnedPoolVerifyResponse:
        pid, count = await asyncio.get_running_loop().run_in_executor(self.pool, work, body.response.output_text)
        return SpawnedPoolVerifyResponse(
            **body.model_dump(), reward=float(count == body.expected_count), is_other_process=pid != os.getpid()
        )


if __name__ == "__main__":
    SpawnedPoolResourcesServer.run_webserver()
