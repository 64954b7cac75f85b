from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from resources_servers.sibling_modules.grader import grade


class SiblingModulesResourcesServerConfig(BaseResourcesServerConfig):
    words_fpath: str = "data/words.txt"


class SiblingModulesVerifyResponse(BaseVerifyResponse):
    unknown: list[str]


class SiblingModulesResourcesServer(SimpleResourcesServer):
    config: SiblingModulesResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> SiblingModulesVerifyResponse:
        graded = grade(body.response.output_text, self.config.words_fpath)
        return SiblingModulesVerifyResponse(**body.model_dump(), reward=graded.reward, unknown=graded.unknown)


if __name__ == "__main__":
    SiblingModulesResourcesServer.run_webserver()
