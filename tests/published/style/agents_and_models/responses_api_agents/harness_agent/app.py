import asyncio
import json
import sys
import tempfile
from asyncio import Semaphore
from pathlib import Path
from typing import Any, Dict, Optional

from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status

HARNESS = Path(__file__).parent / "harness.py"


class HarnessAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    concurrency: int = 4
    attempts: int = 2


class HarnessAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class HarnessAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class HarnessAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class HarnessAgent(SimpleResponsesAPIAgent):
    config: HarnessAgentConfig
    sem: Optional[Semaphore] = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self.sem = Semaphore(self.config.concurrency)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        base_url = self.resolve_model_base_url(self.config.model_server.name)
        return NeMoGymResponse.model_validate(await self._ask_harness(base_url, body))

    async def run(self, body: HarnessAgentRunRequest = Body()) -> HarnessAgentVerifyResponse:
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/seed_session", json=body.model_dump()
        )
        await raise_for_status(seeded)

        rollout_id = self.rollout_id_from_run(body)
        base_url = self.resolve_model_base_url(self.config.model_server.name, rollout_id)
        plain_url = self.resolve_model_base_url(self.config.model_server.name).removesuffix("/v1")
        assert base_url == self.base_url_for_run(plain_url, body) + "/v1"
        async with self.sem:
            answers = [
                NeMoGymResponse.model_validate(await self._ask_harness(base_url, body.responses_create_params))
                for _ in range(self.config.attempts)
            ]

        response = answers[-1]
        response.usage = NeMoGymResponseUsage.sum_from_list([answer.usage or no_usage() for answer in answers])
        verify_request = HarnessAgentVerifyRequest.model_validate(
            body.model_dump() | {"response": response.model_dump()}
        )
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=seeded.cookies,
        )
        await raise_for_status(verified)
        graded = await get_response_json(verified)
        return HarnessAgentVerifyResponse.model_validate(graded | {"base_url": base_url, "capture_id": rollout_id})

    async def _ask_harness(self, base_url: str, body: NeMoGymResponseCreateParamsNonStreaming) -> Dict[str, Any]:
        question = body.input if isinstance(body.input, str) else json.dumps([i.model_dump() for i in body.input])
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "answer.json"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(HARNESS), "--base-url", base_url, "--question", question),
                *("--output", str(output)),
            )
            if await process.wait() != 0:
                raise RuntimeError(f"The harness ended with {process.returncode}")
            return json.loads(await asyncio.to_thread(output.read_text))


def no_usage() -> NeMoGymResponseUsage:
    return NeMoGymResponseUsage(
        input_tokens=0,
        input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=0),
        output_tokens=0,
        output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=0),
        total_tokens=0,
    )


if __name__ == "__main__":
    HarnessAgent.run_webserver()
