"""Two servers whose tools are called over MCP: one with `@tool`, and one in the published style."""

from __future__ import annotations

COUNTING = """
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from nemo_gym import (
    BaseSeedSessionRequest, BaseVerifyRequest, BaseVerifyResponse, NeMoGymResponseInputImage, NeMoGymResponseInputText,
    SessionState, SimpleResourcesServer, ToolError, current_rollout_id, tool,
)


class Counter(SessionState):
    count: int = 0


class SeedRequest(BaseSeedSessionRequest):
    first: int = 0
    allowed: list[str] | None = None


class Counting(SimpleResourcesServer):
    async def seed_session(self, body: SeedRequest, counter: Counter) -> None:
        counter.count = body.first

    def mcp_allowed_tools_for_session(self, seed_body: SeedRequest) -> Iterable[str] | None:
        return seed_body.allowed

    @tool
    async def add(self, by: Annotated[int, Field(description="How many")], counter: Counter) -> str:
        '''Add to the counter.'''
        if by < 0:
            raise ToolError("only upwards")
        counter.count += by
        return f"The counter is at {counter.count}."

    @tool
    def read(self, counter: Counter) -> dict[str, int]:
        '''Read the counter.'''
        return {"count": counter.count}

    @tool
    async def explode(self) -> str:
        '''Do what cannot be done.'''
        raise ZeroDivisionError("the secret cause")

    @tool
    async def whose(self) -> str:
        '''Return the rollout's id.'''
        return str(current_rollout_id())

    @tool
    async def draw(self, url: str) -> list:
        '''Return a picture.'''
        return [NeMoGymResponseInputText(text="a dot"), NeMoGymResponseInputImage(image_url=url)]

    async def verify(self, body: BaseVerifyRequest, counter: Counter) -> BaseVerifyResponse:
        names = [call.name for call in body.response.tool_calls]
        return BaseVerifyResponse.grade(body, reward=counter.count, names=names)
"""
LEDGER = """
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.base_resources_server import (
    BaseRunRequest, BaseSeedSessionRequest, BaseSeedSessionResponse, BaseVerifyRequest, BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class Amount(BaseModel):
    euros: int = Field(ge=1)


class Entry(BaseModel):
    amount: Amount
    note: str = "none"


class Total(BaseModel):
    total: int


class LedgerSeedRequest(BaseRunRequest, BaseSeedSessionRequest):
    only: list[str] | None = None


class LedgerSeedResponse(BaseSeedSessionResponse):
    greeting: str


class LedgerVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


async def of_the_house() -> str:
    return "house"


class Ledger(SimpleResourcesServer):
    totals: dict[str, int] = Field(default_factory=dict)
    calls: int = 0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/book")(self.book)
        app.post("/total")(self.total)
        app.post("/describe")(self.describe)
        app.post("/hidden", include_in_schema=False)(self.total)
        app.post("/{tool_name}")(self.any_other)

        @app.middleware("http")
        async def count(request: Request, call_next):
            self.calls += request.url.path == "/book"
            return await call_next(request)

        return app

    def mcp_tools(self, harvested, catchall):
        schema = {"properties": {"at": {"type": "string"}}, "required": ["at"]}
        return [*harvested, catchall.tool("look", "Look at something.", schema)]

    def mcp_allowed_tools_for_session(self, seed_body):
        return seed_body.only

    async def seed_session(self, request: Request, body: LedgerSeedRequest) -> LedgerSeedResponse:
        self.totals[request.session[SESSION_ID_KEY]] = 0
        return LedgerSeedResponse(greeting="hello")

    async def book(self, request: Request, body: Entry) -> Total:
        '''Book an amount.'''
        session = request.session[SESSION_ID_KEY]
        if body.note == "forbidden":
            raise HTTPException(409, "Not in this house.")
        if body.note == "broken":
            raise HTTPException(503, "The house burns.")
        self.totals[session] += body.amount.euros
        return Total(total=self.totals[session])

    async def total(self, request: Request) -> Total:
        '''Read the total.'''
        return Total(total=self.totals[request.session[SESSION_ID_KEY]])

    async def describe(self, body: Amount, house: str = Depends(of_the_house)) -> str:
        return f"{body.euros} of the {house}, {self.calls}"

    async def any_other(self, tool_name: str, request: Request) -> dict:
        return {"tool": tool_name, "arguments": await request.json()}

    async def verify(self, request: Request, body: LedgerVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=self.totals[request.session[SESSION_ID_KEY]],
        )
"""
