"""A server with tools of many kinds, and the types of their arguments."""

import threading
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request

from nemo_gym import BaseVerifyRequest, SessionState, SimpleResourcesServer, ToolError, tool


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Ware(BaseModel):
    title: str
    amount: int = Field(default=1, ge=1)


class Length(BaseModel):
    metres: float


class Basket(SessionState):
    wares: list[Ware] = Field(default_factory=list)


class Graded(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0


class Shop(Graded):
    @tool
    async def paint(self, colour: Colour, finish: Literal["matt", "gloss"] = "matt") -> str:
        """Paint the wall."""
        return f"{colour!r} {finish}"

    @tool
    async def order(self, wares: list[Ware], basket: Basket, note: str | None = None) -> dict[str, Any]:
        """Order wares.

        All at once.
        """
        basket.wares += wares
        return {"ordered": [ware.amount for ware in wares], "note": note}

    @tool
    async def odd_names(
        self, schema: int, json: str, _x: float, model_config: bool, copy: list[int], body: str
    ) -> list:
        """Take arguments whose names mean something elsewhere."""
        return [schema, json, _x, model_config, copy, body]

    @tool
    async def roll(
        self,
        dice: Annotated[int, Field(ge=1, le=9, description="How many")],
        sides: int = Field(default=6, ge=2, description="Of each"),
        options: dict[str, str] = {"title": "roll"},  # noqa: B006
    ) -> str:
        """Roll dice."""
        return f"{dice}d{sides} {options['title']}"

    @tool(name="look-up", description="Look a word up.")
    def look_up(self, word: str) -> str:
        """The model does not see this docstring."""
        return threading.current_thread().name

    @tool
    async def fail(self, how: str) -> str:
        """Raise a `ToolError`."""
        raise ToolError(f"cannot {how}")

    @tool
    async def who_asks(self, request: Request, greeting: str = "hello") -> str:
        """Name the caller."""
        return f"{greeting} {request.headers['x-caller']}"


LENGTHS = {"type": "object", "properties": {"metres": {"type": "number", "minimum": 0}}, "required": ["metres"]}
