from pathlib import Path
from typing import Any, Dict, List

from omegaconf import DictConfig
from pydantic import ConfigDict

from nemo_gym import PARENT_DIR
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import (
    CACHE_DIR_KEY_NAME,
    RESULTS_DIR_KEY_NAME,
    get_first_server_config_dict,
    get_global_config_dict,
)
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import get_response_json, get_server_url, raise_for_status, request


class AddressBookResourcesServerConfig(BaseResourcesServerConfig):
    model_config = ConfigDict(extra="allow")

    model_server: ModelServerRef


class AddressBookVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    model_type: str
    answers: List[str]


class AddressBookResourcesServer(SimpleResourcesServer):
    config: AddressBookResourcesServerConfig

    def _model_config(self) -> DictConfig:
        return get_first_server_config_dict(self.server_client.global_config_dict, self.config.model_server.name)

    async def verify(self, body: BaseVerifyRequest) -> AddressBookVerifyResponse:
        base_url = self.server_client._build_server_base_url(self._model_config())
        assert base_url == get_server_url(self.config.model_server.name)

        params: Dict[str, Any] = {"input": "Is it so?"}
        by_url = await request(method="POST", url=f"{base_url}/v1/responses", json=params)
        await raise_for_status(by_url)
        client = NeMoGymAsyncOpenAI(base_url=f"{base_url}/v1", api_key="dummy", internal=True)
        by_client = await client.create_response(**params)
        responses = [await get_response_json(by_url), by_client]
        answers = [response["output"][-1]["content"][0]["text"] for response in responses]

        config = get_global_config_dict()
        return AddressBookVerifyResponse(
            **body.model_dump(),
            reward=float(answers[0] == answers[1]),
            answers=answers,
            model_type=next(iter(config[self.config.model_server.name])),
            shared_word=config.get("shared_word"),
            interpolated=self.config.interpolated,
            own_domain=str(get_first_server_config_dict(config, self.config.name)["domain"]),
            models=sorted(
                name
                for name, block in config.items()
                if isinstance(block, DictConfig) and "responses_api_models" in block
            ),
            results=str(config.get(RESULTS_DIR_KEY_NAME)),
            has_cache_dir=CACHE_DIR_KEY_NAME in config,
            is_in_its_folder=Path.cwd() == Path(__file__).parent,
            package_is_there=(PARENT_DIR / "nemo_gym").is_dir(),
        )


if __name__ == "__main__":
    AddressBookResourcesServer.run_webserver()
