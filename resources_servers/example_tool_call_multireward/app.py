"""Reward one tool call for being the right one, for its arguments' types, and for the form of the whole answer."""

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
"""Fixed for good: a currency's worth of one euro."""

Currency = Literal["EUR", "USD", "JPY", "CHF"]


class ToolCallConfig(BaseResourcesServerConfig):
    """Only the response is looked at, so that stored rollouts can be graded again."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class ToolCallVerifyRequest(BaseVerifyRequest):
    """The row's one right call, and what the model did."""

    model_config = ConfigDict(extra="allow")

    expected_call: ExpectedCall


class ToolCallVerifyResponse(BaseMultiRewardVerifyResponse):
    """The row, the reward, and what it is the sum of: each is 0 or 1."""

    model_config = ConfigDict(extra="allow")

    correctness: float
    schema_valid: float
    format: float
    predicted_calls: list[PredictedCall]


class Route(BaseModel):
    """A connection that was found."""

    start: str
    destination: str
    minutes: int


class ToolCallServer(SimpleResourcesServer):
    """Three tools to choose from; the row tells which one is right, and with which arguments."""

    config: ToolCallConfig

    @cached_property
    def own_schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas of the tools' arguments, by the tools' names."""
        return {each.name: each.parameters for each in self.tools()}

    @tool
    async def get_weather(self, city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
        """Tell today's temperature in a city."""
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
        """The sum of the components: a training that knows of them can weigh them otherwise."""
        schemas = dict(self.own_schemas)
        for given in body.responses_create_params.tools:
            if given["type"] == "function":
                schemas[given["name"]] = given.get("parameters") or {}
        # First of all, for it must not depend on the answer whether the row is at fault.
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

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The reward and each of its components."""
        wanted = [f"mean/{name}" for name in ("reward", *COMPONENTS)]
        return {name: agent_metrics[name] for name in wanted if name in agent_metrics}


if __name__ == "__main__":
    ToolCallServer.run_webserver()
