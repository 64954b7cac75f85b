"""Look up the weather in a city and report it. The only tool can be called over HTTP and over MCP."""

import re
import zlib
from typing import ClassVar, NamedTuple

import orjson
from pydantic import BaseModel

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
    ReverifyMode,
    SimpleResourcesServer,
    tool,
)

SKIES = ("sunny", "cloudy", "rainy", "snowy", "foggy", "windy", "stormy", "hazy")
COLDEST, WARMEST = -5, 34


class Weather(NamedTuple):
    sky: str
    degrees: int
    """The temperature in degrees Celsius."""

    def __str__(self) -> str:
        return f"{self.sky}, {self.degrees} degrees Celsius"


class McpWeatherConfig(BaseResourcesServerConfig):
    """The server's settings. Stored rollouts can be graded again, because grading needs only the response."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class VerifierMetadata(BaseModel):
    """The part of a row that decides the reward."""

    expected_city: str


class McpWeatherVerifyRequest(BaseVerifyRequest):
    """A row with the model's response."""

    verifier_metadata: VerifierMetadata


class McpWeatherServer(SimpleResourcesServer):
    """A server that rewards looking up the weather and reporting it correctly."""

    config: McpWeatherConfig

    @tool
    async def get_weather(self, city: str) -> str:
        """Return today's weather in a city."""
        return f"The weather in {city}: {weather_in(city)}."

    async def verify(self, body: McpWeatherVerifyRequest) -> BaseVerifyResponse:
        """Reward a call for the row's city and a last message that reports its result."""
        city = body.verifier_metadata.expected_city
        expected = weather_in(city)
        is_seen = asks_for(body.response, city)
        is_mentioned = mentions(body.response.answer_text, expected)
        return BaseVerifyResponse.grade(
            body,
            reward=float(is_seen and is_mentioned),
            expected_weather=str(expected),
            tool_call_seen=is_seen,
            final_response_mentions_weather=is_mentioned,
        )


def weather_in(city: str) -> Weather:
    """Return the invented weather of a city. It depends only on the city's name."""
    checksum = zlib.crc32(_plain(city).encode("utf-8", "replace"))
    sky, degrees = checksum % len(SKIES), checksum // len(SKIES) % (WARMEST - COLDEST + 1)
    return Weather(SKIES[sky], COLDEST + degrees)


def asks_for(response: NeMoGymResponse, city: str) -> bool:
    """Return whether a response calls the tool for this city."""
    return any(call.name == "get_weather" and _city_of(call.arguments) == _plain(city) for call in response.tool_calls)


def mentions(text: str, weather: Weather) -> bool:
    """Return whether a text mentions both the sky and the temperature, in any wording."""
    text = text.replace("\N{MINUS SIGN}", "-")
    has_sky = re.search(rf"\b{weather.sky}\b", text, re.IGNORECASE)
    has_degrees = re.search(rf"(?<![\d.,-]){weather.degrees}(?![\d]|[.,]\d)", text)
    return bool(has_sky and has_degrees)


def _city_of(arguments: str) -> str | None:
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    city = given.get("city") if isinstance(given, dict) else None
    return _plain(city) if isinstance(city, str) else None


def _plain(city: str) -> str:
    return " ".join(city.split()).casefold()


if __name__ == "__main__":
    McpWeatherServer.run_webserver()
