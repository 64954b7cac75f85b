from pydantic import Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class CoinRowConfig(BaseResourcesServerConfig):
    workers: list[str] = Field(default_factory=list)
    isolated: str = "no"
    judge: dict | None = None


class CoinRowVerifyRequest(BaseVerifyRequest):
    expected_side: str


class CoinRowVerifyResponse(CoinRowVerifyRequest, BaseVerifyResponse):
    workers: list[str]
    judge: dict | None


class CoinRowServer(SimpleResourcesServer):
    config: CoinRowConfig

    async def verify(self, body: CoinRowVerifyRequest) -> CoinRowVerifyResponse:
        said = body.response.output[-1].content[0].text
        return CoinRowVerifyResponse(
            **body.model_dump(),
            reward=float(body.expected_side in said),
            workers=self.config.workers,
            judge=self.config.judge,
        )


if __name__ == "__main__":
    CoinRowServer.run_webserver()
