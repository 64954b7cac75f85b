from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Session:
    lines: List[str] = field(default_factory=list)
    used_at: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class NotePadConfig(BaseResourcesServerConfig):
    session_ttl_seconds: int = 3600
    workers_per_pad: int = 1


class SeedRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")
    verifier_metadata: Optional[Dict[str, Any]] = None


class WriteRequest(BaseModel):
    line: str
    at: Optional[int] = None


class PadResponse(BaseModel):
    lines: List[str]


class VerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    verifier_metadata: Dict[str, Any]


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    lines: List[str]


class NotePadResourcesServer(SimpleResourcesServer):
    config: NotePadConfig
    tools: List[Dict[str, Any]] = Field(default_factory=list)
    sessions: Dict[str, Any] = Field(default_factory=dict)

    _sessions: Dict[str, Session] = PrivateAttr(default_factory=dict)
    _cleanup_task: Optional[asyncio.Task] = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/write")(self.write)
        app.post("/read")(self.read)
        app.get("/tools")(self.list_tools)
        app.post("/close_session")(self.close)

        main_lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
            self._cleanup_task = asyncio.create_task(self._clean_up())
            try:
                async with main_lifespan(app) as state:
                    yield state
            finally:
                self._cleanup_task.cancel()

        app.router.lifespan_context = lifespan
        return app

    async def _clean_up(self) -> None:
        while True:
            await asyncio.sleep(60)
            self._close_session(
                [
                    key
                    for key, each in self._sessions.items()
                    if each.used_at + self.config.session_ttl_seconds < time.monotonic()
                ]
            )

    def _close_session(self, session_ids: List[str]) -> None:
        for session_id in session_ids:
            self._sessions.pop(session_id, None)

    def _of(self, request: Request) -> Session:
        session_id = request.session[SESSION_ID_KEY]
        if session_id not in self._sessions:
            raise HTTPException(status_code=404, detail="no pad")
        return self._sessions[session_id]

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        session_id = request.session[SESSION_ID_KEY]
        self._sessions[session_id] = Session(lines=list((body.verifier_metadata or {}).get("first_lines", [])))
        self.sessions[session_id] = True
        return BaseSeedSessionResponse()

    async def write(self, request: Request, body: WriteRequest) -> PadResponse:
        session = self._of(request)
        async with session.lock:
            session.lines.insert(len(session.lines) if body.at is None else body.at, body.line)
            return PadResponse(lines=session.lines)

    async def read(self, request: Request) -> PadResponse:
        return PadResponse(lines=self._of(request).lines)

    async def list_tools(self) -> List[Dict[str, Any]]:
        return self.tools

    async def close(self, request: Request) -> Dict[str, bool]:
        session_id = request.session[SESSION_ID_KEY]
        return {"was_open": self._sessions.pop(session_id, None) is not None}

    async def verify(self, request: Request, body: VerifyRequest) -> VerifyResponse:
        session_id = request.session[SESSION_ID_KEY]
        lines = self._of(request).lines
        self._close_session([session_id])
        self.sessions.pop(session_id)
        reward = 1.0 if lines == body.verifier_metadata["expected_lines"] else 0.0
        return VerifyResponse(**body.model_dump(), reward=reward, lines=lines)


if __name__ == "__main__":
    NotePadResourcesServer.run_webserver()
