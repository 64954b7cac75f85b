from typing import Any, Dict, List, Optional

from fastapi import FastAPI, Request
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


class NotedOverMcpResourcesServerConfig(BaseResourcesServerConfig):
    expose_tools_over_mcp: bool = True


class AddNoteRequest(BaseModel):
    text: str
    tags: List[str] = Field(default_factory=list)


class NoteResponse(BaseModel):
    notes: List[str]


class NotedSeedSessionRequest(BaseSeedSessionRequest):
    first_notes: List[str] = []
    read_only: bool = False


class NotedVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    expected_notes: List[str]


class NotedOverMcpResourcesServer(SimpleResourcesServer):
    config: NotedOverMcpResourcesServerConfig
    notes: Dict[str, List[str]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add_note")(self.add_note)
        app.post("/read_notes")(self.read_notes)
        app.post("/reset_everything")(self.reset_everything)
        return app

    def mcp_tools(self, harvested: List[Any], catchall: Optional[Any]) -> List[Any]:
        return [tool for tool in harvested if tool.name != "reset_everything"]

    def mcp_allowed_tools_for_session(self, seed_body: NotedSeedSessionRequest) -> Optional[List[str]]:
        return ["read_notes"] if seed_body.read_only else None

    async def seed_session(self, request: Request, body: NotedSeedSessionRequest) -> BaseSeedSessionResponse:
        self.notes[request.session[SESSION_ID_KEY]] = list(body.first_notes)
        return BaseSeedSessionResponse()

    async def add_note(self, request: Request, body: AddNoteRequest) -> NoteResponse:
        """Write a note down."""
        notes = self.notes[request.session[SESSION_ID_KEY]]
        notes.append(" #".join([body.text, *body.tags]))
        return NoteResponse(notes=notes)

    async def read_notes(self, request: Request) -> NoteResponse:
        """Read all notes."""
        return NoteResponse(notes=self.notes[request.session[SESSION_ID_KEY]])

    async def reset_everything(self) -> None:
        self.notes.clear()

    async def verify(self, request: Request, body: NotedVerifyRequest) -> BaseVerifyResponse:
        names = {self.normalize_tool_name(item.name) for item in body.response.output if item.type == "function_call"}
        notes = self.notes.pop(request.session[SESSION_ID_KEY], [])
        reward = float(notes == body.expected_notes and names <= {"add_note", "read_notes"})
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    NotedOverMcpResourcesServer.run_webserver()
