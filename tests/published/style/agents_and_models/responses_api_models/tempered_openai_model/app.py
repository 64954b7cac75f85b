from nemo_gym.base_responses_api_model import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig


class TemperedOpenAIModelConfig(SimpleModelServerConfig):
    warmest: float = 0.5


class TemperedOpenAIModel(SimpleModelServer):
    config: TemperedOpenAIModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        warmth = min(body.temperature if body.temperature is not None else 1.0, self.config.warmest)
        return await super().responses(body.model_copy(update={"temperature": warmth}))


if __name__ == "__main__":
    TemperedOpenAIModel.run_webserver()
