import os
from typing import ClassVar

from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint


class PooledCounterResourcesServerConfig(BaseResourcesServerConfig):
    pass


class CountRequest(BaseModel):
    text: str


class CountResponse(BaseModel):
    letters: int
    worker: int


class PooledCounterVerifyRequest(BaseVerifyRequest):
    expected_letters: int


class PooledCounterResourcesServer(SimpleResourcesServer):
    config: PooledCounterResourcesServerConfig
    ray_enabled: ClassVar[bool] = False

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.post("/count")
        async def count(body: CountRequest) -> CountResponse:
            """Count the letters of a text."""
            return CountResponse(letters=len(body.text), worker=os.getpid())

        return app

    async def verify(self, body: PooledCounterVerifyRequest) -> BaseVerifyResponse:
        reward = float(str(body.expected_letters) in body.response.output_text)
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    PooledCounterResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = PooledCounterResourcesServer.run_webserver()  # noqa: F401
