"""A perfect attempt: look the weather up, then tell it."""

from typing import Any

from nemo_gym.testing import call
from resources_servers.example_mcp_weather.app import weather_in


def solve(row: dict[str, Any]) -> list[Any]:
    """Ask the tool for the row's city, and say what it answered."""
    city = row["verifier_metadata"]["expected_city"]
    return [call("get_weather", city=city), f"It is {weather_in(city)} in {city} today."]
