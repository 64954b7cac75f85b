"""Grade a tool call by three components: the right call, valid arguments, and the form of the whole response."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
    tool,
)
from resources_servers.example_tool_call_multireward.grading import ExpectedCall, PredictedCall, check_row, rewards_of

COMPONENTS = ("correctness", "schema_valid", "format")

RATES = {"EUR": 1.0, "USD": 1.25, "JPY": 160.0, "CHF": 0.95}
"""Fixed exchange rates: units of each currency per euro."""

Currency = Literal["EUR", "USD", "JPY", "CHF"]


class ToolCallConfig(BaseResourcesServerConfig):
    """The server's settings. Stored rollouts can be graded again, because grading needs only the response."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class ToolCallVerifyRequest(BaseVerifyRequest):
    """The row's expected call and the model's response."""

    model_config = ConfigDict(extra="allow")

    expected_call: ExpectedCall


class ToolCallVerifyResponse(BaseMultiRewardVerifyResponse):
    """A `verify()` response with the reward and its components, each of which is 0 or 1."""

    model_config = ConfigDict(extra="allow")

    correctness: float
    schema_valid: float
    format: float
    predicted_calls: list[PredictedCall]


class Route(BaseModel):
    """The result of `plan_route`."""

    start: str
    destination: str
    minutes: int


class ToolCallServer(SimpleResourcesServer):
    """A server with three tools. Each row names the right tool and its arguments."""

    config: ToolCallConfig
    KEY_METRICS = ("mean/reward", "mean/correctness", "mean/schema_valid", "mean/format")

    @cached_property
    def own_schemas(self) -> dict[str, dict[str, Any]]:
        """The JSON Schemas of the tools' arguments, by tool name."""
        return {each.name: each.parameters for each in self.tools()}

    @tool
    async def get_weather(self, city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
        """Return today's temperature in a city."""
        celsius = sum(map(ord, city)) % 30
        return f"{celsius} °C" if unit == "celsius" else f"{celsius * 9 / 5 + 32:g} °F"

    @tool
    async def convert_currency(
        self, amount: Annotated[float, Field(ge=0)], source: Currency, target: Currency
    ) -> dict[str, float]:
        """Convert an amount of money."""
        return {"amount": round(amount / RATES[source] * RATES[target], 2)}

    @tool
    async def plan_route(
        self,
        start: str,
        destination: str,
        avoid: list[Literal["ferries", "highways", "tolls"]] | None = None,
    ) -> Route:
        """Plan a route between two places; `avoid` lists what it must not use."""
        minutes = 20 + abs(len(start) - len(destination)) * 7 + 15 * len(set(avoid or []))
        return Route(start=start, destination=destination, minutes=minutes)

    async def verify(self, body: ToolCallVerifyRequest) -> ToolCallVerifyResponse:
        """Reward the response with the sum of the components. Include them in the reply, to allow other weightings."""
        schemas = dict(self.own_schemas)
        for given in body.responses_create_params.tools:
            if given["type"] == "function":
                schemas[given["name"]] = given.get("parameters") or {}
        # Check the row first, because an invalid row must fail regardless of the model's answer.
        check_row(body.expected_call, schemas)
        graded = rewards_of(body.response, body.expected_call, schemas)
        row = {name: value for name, value in body if name in body.model_fields_set}
        added: dict[str, Any] = {
            "reward": sum(graded.components.values()),
            **graded.components,
            "predicted_calls": graded.calls,
            "reward_components": graded.components,
        }
        return ToolCallVerifyResponse.model_construct(**{**row, **added})


if __name__ == "__main__":
    ToolCallServer.run_webserver()
