import json
from time import time
from uuid import uuid4

from fastapi import FastAPI, Request

from nemo_gym.base_responses_api_model import Body, start_model_execution
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX
from nemo_gym.openai_utils import MAX_NUM_TRIES, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig


class TracedVLLMModelConfig(VLLMModelConfig):
    uses_reasoning_parser: bool = False
    request_tries: int = MAX_NUM_TRIES
    most_items: int = 100


class TracedVLLMModel(VLLMModel):
    """A release 0.7 folder: it notes where an answer came from, and answers long conversations itself."""

    config: TracedVLLMModelConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        @app.middleware("http")
        async def show_execution(request: Request, call_next):
            response = await call_next(request)
            execution = getattr(request.state, "nemo_gym_model_execution", None)
            if execution is not None:
                response.headers["x-model-execution"] = json.dumps(execution)
            return response

        return app

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        is_long = isinstance(body.input, list) and len(body.input) > self.config.most_items
        execution = start_model_execution(request, upstream_attempted=not is_long)
        if not is_long:
            response = await super().responses(request, body)
            execution["response_source"] = "upstream"
            execution["upstream_status_code"] = 200
            return response
        execution["response_source"] = "local"
        execution["local_response_reason"] = "most_items"
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=time(),
            model=self.config.model,
            object="response",
            output=[],
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )

    def captured_path(self, rollout_id: str) -> str:
        return f"/{ROLLOUT_PATH_PREFIX}/{rollout_id}/v1/responses"


if __name__ == "__main__":
    TracedVLLMModel.run_webserver()
