import asyncio
from typing import Any, Dict, Optional

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SimpleResourcesServer,
)
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.kept_words.task_data import TaskData


class KeptWordsConfig(BaseResourcesServerConfig):
    pass


class Session(BaseModel):
    resources_session_id: str
    episode_id: EpisodeId
    task_id: TaskId
    task: TaskData


class KeptWordsVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class KeptWordsVerifyResponse(BaseVerifyResponse):
    """Without `extra="allow"`: only declared fields are in the results."""

    said: str
    word: str
    capture_key: str
    taskset: str
    open_sessions: int
    detail: Optional[str] = None


class KeptWordsResourcesServer(SimpleResourcesServer):
    config: KeptWordsConfig

    kept: Dict[str, Any] = Field(default_factory=dict)

    async def seed_session(self, request: Request, body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:
        self.kept[request.session[SESSION_ID_KEY]] = Session(
            resources_session_id=body.resources_session_id,
            episode_id=body.episode_id,
            task_id=body.task_id,
            task=TaskData.model_validate(body.task_data),
        )
        return ResourcesSeedSessionResponse()

    async def verify(self, request: Request, body: KeptWordsVerifyRequest) -> KeptWordsVerifyResponse:
        session = self.kept[request.session[SESSION_ID_KEY]]
        if session.task.plan == "slow_verify":
            await asyncio.sleep(3600)
        said = body.response.output_text
        result = KeptWordsVerifyResponse(
            **body.model_dump(include={"responses_create_params", "response"}),
            reward=float(said == session.task.word),
            said=said,
            word=session.task.word,
            capture_key=session.episode_id.capture_key,
            taskset=session.task_id.taskset,
            open_sessions=len(self.kept),
        )
        if session.task.plan == "masked":
            marks = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full"}
            result = result.model_copy(update=marks)
        return result

    async def close_session(
        self, request: Request, body: ResourcesCloseSessionRequest
    ) -> ResourcesCloseSessionResponse:
        return ResourcesCloseSessionResponse(closed=self.kept.pop(request.session[SESSION_ID_KEY], None) is not None)


if __name__ == "__main__":
    KeptWordsResourcesServer.run_webserver()
