from typing import Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class KeptDraftsConfig(BaseResourcesServerConfig):
    pass


class KeptDraftsVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    word: str
    draft_name: Optional[str] = None


class KeptDraftsVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class KeptDraftsServer(SimpleResourcesServer):
    config: KeptDraftsConfig

    async def verify(self, body: KeptDraftsVerifyRequest) -> KeptDraftsVerifyResponse:
        said = body.response.output[-1].content[0].text
        return KeptDraftsVerifyResponse(**body.model_dump(), reward=float(said == body.word))


if __name__ == "__main__":
    KeptDraftsServer.run_webserver()
