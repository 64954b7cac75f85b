from typing import Any, ClassVar, Dict, Optional

from fastapi import FastAPI, Request
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
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.task_box.task_data import TaskData


class TaskBoxResourcesServerConfig(BaseResourcesServerConfig):
    allowed_agents: ClassVar[list[str]] = ["simple_agent"]


class PutRequest(BaseModel):
    content: str


class TaskBoxVerifyRequest(TaskData, BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class TaskBoxVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    content: Optional[str]
    capture_key: str
    task_key: str


class TaskBoxResourcesServer(SimpleResourcesServer):
    config: TaskBoxResourcesServerConfig
    ray_enabled = True

    boxes: Dict[str, Dict[str, Any]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/put")(self.put)
        return app

    async def seed_session(self, request: Request, body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:
        task = TaskData.model_validate(body.task_data)
        self.boxes[request.session[SESSION_ID_KEY]] = {
            "box": task.box,
            "content": None,
            "capture_key": body.episode_id.capture_key,
            "task_id": body.task_id,
        }
        return ResourcesSeedSessionResponse()

    async def put(self, request: Request, body: PutRequest) -> Dict[str, str]:
        box = self.boxes[request.session[SESSION_ID_KEY]]
        box["content"] = body.content
        return {"message": f"The {box['box']} box holds {body.content}."}

    async def verify(self, request: Request, body: TaskBoxVerifyRequest) -> TaskBoxVerifyResponse:
        box = self.boxes[request.session[SESSION_ID_KEY]]
        content, task_id = box["content"], box["task_id"]
        return TaskBoxVerifyResponse(
            **body.model_dump(),
            reward=float(content == body.expected_content),
            content=content,
            capture_key=box["capture_key"],
            task_key=f"{task_id.taskset}/{task_id.task_id}",
        )

    async def close_session(
        self, request: Request, body: ResourcesCloseSessionRequest
    ) -> ResourcesCloseSessionResponse:
        self.boxes.pop(request.session[SESSION_ID_KEY], None)
        return ResourcesCloseSessionResponse()


if __name__ == "__main__":
    TaskBoxResourcesServer.run_webserver()
