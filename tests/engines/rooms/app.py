"""Tools whose results depend on their arguments alone, and a map that is too long for the model's context."""

from typing import Literal

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer, tool


class Rooms(SimpleResourcesServer):
    @tool
    async def turn(self, side: Literal["left", "right"]) -> str:
        """Turn to a side."""
        return f"You look to the {side}."

    @tool
    async def read_map(self, page: Literal["first", "last"]) -> str:
        """Read a page of the map."""
        return f"The {page} page. " + "A room and a door. " * 60

    async def verify(self, body: BaseVerifyRequest) -> float:
        return float(len(body.response.tool_calls))
