from typing import Dict, List

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class RunningSumResourcesServerConfig(BaseResourcesServerConfig):
    max_summand: int = 1000


class AddRequest(BaseModel):
    number: int


class AddResponse(BaseModel):
    success: bool
    total: int


class TotalResponse(BaseModel):
    total: int


class RunningSumSeedSessionRequest(BaseSeedSessionRequest):
    first_total: int = 0


class RunningSumSeedSessionResponse(BaseSeedSessionResponse):
    first_total: int


class RunningSumVerifyRequest(BaseVerifyRequest):
    expected_total: int


class RunningSumVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    total: int


class RunningSumResourcesServer(SimpleResourcesServer):
    config: RunningSumResourcesServerConfig
    session_id_to_total: Dict[str, int] = Field(default_factory=dict)
    finished_session_ids: List[str] = Field(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()

        app.post("/add")(self.add)
        app.post("/get_total")(self.get_total)

        return app

    async def seed_session(
        self, request: Request, body: RunningSumSeedSessionRequest
    ) -> RunningSumSeedSessionResponse:
        session_id = request.session[SESSION_ID_KEY]
        self.session_id_to_total.setdefault(session_id, body.first_total)
        return RunningSumSeedSessionResponse(first_total=body.first_total)

    async def add(self, request: Request, body: AddRequest) -> AddResponse:
        session_id = request.session[SESSION_ID_KEY]
        if session_id not in self.session_id_to_total:
            raise HTTPException(status_code=400, detail="Session not initialized. Please call seed_session first.")
        if abs(body.number) > self.config.max_summand:
            raise HTTPException(status_code=422, detail=f"{body.number} is too much to add at once")
        self.session_id_to_total[session_id] += body.number
        return AddResponse(success=True, total=self.session_id_to_total[session_id])

    async def get_total(self, request: Request) -> TotalResponse:
        return TotalResponse(total=self.session_id_to_total.get(request.session[SESSION_ID_KEY], 0))

    async def verify(self, request: Request, body: RunningSumVerifyRequest) -> RunningSumVerifyResponse:
        session_id = request.session[SESSION_ID_KEY]
        total = self.session_id_to_total.pop(session_id, 0)
        self.finished_session_ids.append(session_id)
        reward = float(total == body.expected_total)
        return RunningSumVerifyResponse(**body.model_dump(), reward=reward, total=total)


if __name__ == "__main__":
    RunningSumResourcesServer.run_webserver()
