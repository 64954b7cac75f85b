"""An environment that fails as requested by its rows and tool calls."""

import asyncio
import os
import threading
from pathlib import Path

from fastapi import HTTPException
from pydantic import Field

from nemo_gym import BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, ToolError, tool
from nemo_gym.config.settings import BaseResourcesServerConfig, ModelServerRef
from nemo_gym.grading.judge_calls import call_judge
from nemo_gym.schemas.responses import Response


class FaultyConfig(BaseResourcesServerConfig):
    judge: ModelServerRef


class Notes(SessionState):
    texts: list[str] = Field(default_factory=list)


class SeedRequest(BaseSeedSessionRequest):
    seed: str = ""
    case: str = ""


class VerifyRequest(BaseVerifyRequest):
    case: str = ""
    grade: str = ""
    notes: int = 0
    question: str = ""


def dies_now(whose: str) -> bool:
    """Return True only once per case, even after restarts of this server."""
    try:
        Path(f"died-{whose}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def misbehave(how: str, whose: str = "") -> None:
    if how == "die once" and dies_now(whose):
        os._exit(3)
    if how == "raise":
        raise ZeroDivisionError("of nothing")
    if how == "hang":
        await asyncio.sleep(3600)


class Faulty(SimpleResourcesServer):
    config: FaultyConfig

    async def seed_session(self, body: SeedRequest, notes: Notes) -> None:
        await misbehave(body.seed, body.case)

    @tool
    async def note(self, text: str, notes: Notes) -> str:
        """Write a note down."""
        notes.texts.append(text)
        return "noted"

    @tool
    async def act(self, how: str, text: str) -> str:
        """Behave like this."""
        if how == "tell":
            raise ToolError("that is not possible")
        if how == "forbid":
            raise HTTPException(403, "not for you")
        if how == "time out":
            raise TimeoutError("the database did not answer")
        await misbehave(how, text.rpartition("case=")[2])
        return "acted"

    @tool
    def block(self, text: str) -> str:
        """Never return."""
        threading.Event().wait()
        return "unreachable"

    async def verify(self, body: VerifyRequest, notes: Notes) -> float:
        await misbehave(body.grade, body.case)
        if body.grade == "nan":
            return float("nan")
        if body.grade == "judge":
            await call_judge(
                self.server_client,
                server_name=self.config.judge.name,
                url_path="/v1/responses",
                json={"input": [{"role": "user", "content": body.question}], "metadata": {"script": "[]"}},
                response_model=Response,
            )
        # The notes belong to one attempt, and each call must have been made exactly once.
        return float(len(notes.texts) == body.notes)


if __name__ == "__main__":
    Faulty.run_webserver()
