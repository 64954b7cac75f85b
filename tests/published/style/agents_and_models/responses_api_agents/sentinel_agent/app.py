import asyncio
from typing import Any, Dict

from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import ATTEMPT_INDEX_KEY_NAME
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY, NG_NO_PERSIST_KEY, NG_TERMINAL_KEY
from nemo_gym.server_utils import get_response_json, raise_for_status


class SentinelAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    max_run_retries: int = 2


class SentinelAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class SentinelAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class RemoteAgentError(Exception):
    pass


class SentinelAgent(SimpleResponsesAPIAgent):
    config: SentinelAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        response = await self.server_client.post(
            server_name=self.config.model_server.name, url_path="/v1/responses", json=body
        )
        await raise_for_status(response)
        return NeMoGymResponse.model_validate(await get_response_json(response))

    async def run(self, body: SentinelAgentRunRequest = Body()) -> SentinelAgentVerifyResponse:
        row = body.model_dump()
        response = await self.responses(body.responses_create_params)
        result: Dict[str, Any] = row | {"response": response.model_dump(), "reward": 0.0}
        for attempt in range(self.config.max_run_retries + 1):
            try:
                result["reward"] = await self._attempt(row, attempt)
                result["run_attempts"] = attempt + 1
                break
            except RemoteAgentError as e:
                await asyncio.sleep(0)
                result |= self._failure(row, e)
        else:
            return SentinelAgentVerifyResponse.model_validate(result)
        # This attempt succeeded after an earlier failure.
        for key in (NG_FAILURE_CLASS_KEY, NG_NO_PERSIST_KEY, NG_TERMINAL_KEY, "mask_sample"):
            result.pop(key, None)
        if row["plan"] == "masked":
            result["mask_sample"] = True
        return SentinelAgentVerifyResponse.model_validate(result)

    async def _attempt(self, row: Dict[str, Any], attempt: int) -> float:
        plan = row["plan"]
        succeeds = {
            "good": True,
            "masked": True,
            "good_in_the_end": attempt == self.config.max_run_retries,
            "good_when_resumed": row.get(ATTEMPT_INDEX_KEY_NAME, 0) >= 1,
        }
        if not succeeds.get(plan, False):
            raise RemoteAgentError(f"the remote agent gave up ({plan})")
        return 1.0

    def _failure(self, row: Dict[str, Any], error: Exception) -> Dict[str, Any]:
        if row["plan"] == "passing":
            return {NG_NO_PERSIST_KEY: True}
        failure = {NG_FAILURE_CLASS_KEY: "remote_agent_error", "error": str(error), "mask_sample": True}
        if row["plan"] == "hopeless":
            failure[NG_TERMINAL_KEY] = True
        return failure


if __name__ == "__main__":
    SentinelAgent.run_webserver()
