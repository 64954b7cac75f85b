from nemo_gym.base_resources_server import ReverifyMode
from resources_servers.exact_word.app import (
    ExactWordResourcesServer,
    ExactWordResourcesServerConfig,
    ExactWordVerifyRequest,
    ExactWordVerifyResponse,
)


class StrictWordResourcesServerConfig(ExactWordResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS

    ignore_case: bool = False
    max_words: int = 3


class StrictWordVerifyResponse(ExactWordVerifyResponse):
    num_words: int = 0


class StrictWordResourcesServer(ExactWordResourcesServer):
    config: StrictWordResourcesServerConfig

    async def verify(self, body: ExactWordVerifyRequest) -> StrictWordVerifyResponse:
        graded = await super().verify(body)
        num_words = len(body.response.output_text.split())
        reward = graded.reward if num_words <= self.config.max_words else 0.0
        return StrictWordVerifyResponse(
            **graded.model_copy(update={"reward": reward}).model_dump(), num_words=num_words
        )


if __name__ == "__main__":
    StrictWordResourcesServer.run_webserver()
