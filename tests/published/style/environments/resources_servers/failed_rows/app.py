from typing import Any, Dict

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY, NG_TERMINAL_KEY


class FailedRowsResourcesServerConfig(BaseResourcesServerConfig):
    pass


class FailedRowsVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow", populate_by_name=True)

    ending: str
    task_index: int = Field(default=-1, alias=TASK_INDEX_KEY_NAME)


class FailedRowsVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    mask_sample: bool = False


class BreakRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    how: str


class FailedRowsResourcesServer(SimpleResourcesServer):
    config: FailedRowsResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/break_it")(self.break_it)
        return app

    async def break_it(self, body: BreakRequest) -> Dict[str, Any]:
        if body.how == "politely":
            raise HTTPException(status_code=418, detail="I will not be broken.")
        raise RuntimeError(f"broken {body.how}")

    async def verify(self, body: FailedRowsVerifyRequest) -> FailedRowsVerifyResponse:
        payload = body.model_dump()
        if body.ending == "failed":
            payload |= {NG_FAILURE_CLASS_KEY: "sandbox_lost", NG_TERMINAL_KEY: True}
        if body.ending == "raised":
            raise ValueError("the verifier is broken")
        return FailedRowsVerifyResponse(
            **payload,
            reward=0.0,
            mask_sample=body.ending == "masked",
            seen_index=body.task_index,
            seen_rollout=payload.get(ROLLOUT_INDEX_KEY_NAME),
        )


if __name__ == "__main__":
    FailedRowsResourcesServer.run_webserver()
