from typing import Any, Dict

from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME, maybe_get_global_config_dict
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import (
    apply_rollout_prefix,
    get_first_server_config_dict,
    get_global_aiohttp_client,
    get_server_url,
    is_global_aiohttp_client_request_debug_enabled,
    raise_for_status,
    rollout_path_prefix,
)
from nemo_gym.server_utils import request as http_request


class AddressAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    resources_server: ResourcesServerRef


class AddressAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)


class AddressAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class AddressAgent(SimpleResponsesAPIAgent):
    """An agent that calls its servers by address, without the framework's client."""

    config: AddressAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        base_url = self.resolve_model_base_url(self.config.model_server.name)
        client = NeMoGymAsyncOpenAI(base_url=base_url, api_key="dummy", internal=True)
        return NeMoGymResponse.model_validate(await client.create_response(**body.model_dump(exclude_unset=True)))

    async def run(self, body: AddressAgentRunRequest = Body()) -> AddressAgentVerifyResponse:
        row: Dict[str, Any] = body.model_dump(exclude_unset=True)
        rollout_id = f"{row[TASK_INDEX_KEY_NAME]}-{row[ROLLOUT_INDEX_KEY_NAME]}"
        environment = apply_rollout_prefix(get_server_url(self.config.resources_server.name), rollout_id)
        assert environment.endswith(rollout_path_prefix(rollout_id))
        seeded = await http_request("POST", f"{environment}/seed_session", json=row)
        await raise_for_status(seeded)
        cookies = {name: cookie.value for name, cookie in seeded.cookies.items()}

        called = await http_request(
            method="POST", url=f"{environment}/increment_counter", json={"count": row["step"]}, cookies=cookies
        )
        tool_answer = await called.json()

        response = await self.responses(body.responses_create_params)
        settings = get_first_server_config_dict(
            self.server_client.global_config_dict, self.config.resources_server.name
        )
        base_url = self.server_client._build_server_base_url(settings)
        async with get_global_aiohttp_client().post(
            f"{base_url}/verify", json={**row, "response": response.model_dump()}, cookies=cookies
        ) as verified:
            result = await verified.json()
        assert maybe_get_global_config_dict() == self.server_client.global_config_dict
        return AddressAgentVerifyResponse.model_validate(
            {
                **result,
                "tool_answer": tool_answer,
                "debug": is_global_aiohttp_client_request_debug_enabled(),
                "status": self.server_client.poll_for_status("head_server"),
            }
        )


if __name__ == "__main__":
    AddressAgent.run_webserver()
