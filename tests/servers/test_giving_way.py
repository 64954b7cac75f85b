"""A published folder may use our newer names for things of its own."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from nemo_gym.testing import reply

CONFIG = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
ROW = {"responses_create_params": {"input": "a"}, "response": reply("b").model_dump()}


class Graded(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class FieldCalledSessions(Graded):
    sessions: dict[str, Any] = Field(default_factory=dict)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self.sessions[request.session[SESSION_ID_KEY]] = body
        return BaseVerifyResponse(**body.model_dump(), reward=float(len(self.sessions)))


class PrivateAttributeCalledSessions(Graded):
    _sessions: dict[str, Any] = PrivateAttr(default_factory=dict)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self._sessions[request.session[SESSION_ID_KEY]] = body
        return BaseVerifyResponse(**body.model_dump(), reward=float(len(self._sessions)))


class AttributeMadeLater(Graded):
    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._sessions = {}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(self._sessions == {}))


class FieldCalledTools(Graded):
    tools: list[dict[str, Any]] = Field(default_factory=list)


class MethodCalledTools(Graded):
    async def tools(self, request: Request) -> list[str]:
        return ["mine"]


class ToolsOfAnotherKind(Graded):
    def tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "name": "mine"}]


class HelperThatCloses(Graded):
    closed: list[str] = Field(default_factory=list)

    def close_session(self, session_id: str, env: object = None) -> None:
        self.closed.append(session_id)

    async def _close_session(self, session_id: str) -> None:
        self.closed.append(session_id)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0 - len(self.closed))


class FieldThatCloses(Graded):
    close_session: bool = True


@pytest.mark.parametrize(
    "kind",
    [
        FieldCalledSessions, PrivateAttributeCalledSessions, AttributeMadeLater, FieldCalledTools, MethodCalledTools,
        ToolsOfAnotherKind, HelperThatCloses, FieldThatCloses,
    ],
)  # fmt: skip
def test_a_rollout_takes_its_course_beside_a_name_that_the_folder_uses_itself(kind):
    server = kind(config=CONFIG, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/seed_session", json=ROW).json() == {}
        assert client.post("/close_session").json() == {"closed": False}
        assert client.get("/tools").json() == []
        assert client.post("/verify", json=ROW).json()["reward"] == 1.0


class Closing(BaseModel):
    why: str = ""


class RoutesOfItsOwn(Graded):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/tools")(self.list_of_mine)
        app.post("/close_session")(self.close_it)
        app.post("/verify")(self.close_it)
        return app

    async def list_of_mine(self) -> list[str]:
        return ["hammer"]

    async def close_it(self, body: Closing) -> str:
        return f"closed: {body.why}"


def test_a_folders_own_route_takes_the_place_of_ours_but_not_of_a_published_one():
    client = TestClient(RoutesOfItsOwn(config=CONFIG, server_client=MagicMock(spec=ServerClient)).setup_webserver())
    assert client.get("/tools").json() == ["hammer"]
    assert client.post("/close_session", json={"why": "late"}).json() == "closed: late"
    assert client.post("/verify", json=ROW).json()["reward"] == 1.0
