from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    SimpleResourcesServer,
)


class ManyRewardsResourcesServerConfig(BaseResourcesServerConfig):
    weights: dict[str, float] = {"short": 0.25, "polite": 0.75}


class ManyRewardsResourcesServer(SimpleResourcesServer):
    config: ManyRewardsResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseMultiRewardVerifyResponse:
        text = body.response.output_text
        components = {"short": float(len(text) < 20), "polite": float("please" in text.lower())}
        reward = sum(self.config.weights[name] * value for name, value in components.items())
        return BaseMultiRewardVerifyResponse(**body.model_dump(), reward=reward, reward_components=components)


if __name__ == "__main__":
    ManyRewardsResourcesServer.run_webserver()
