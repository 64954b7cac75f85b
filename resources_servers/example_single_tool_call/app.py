"""Answer one weather question with one tool."""

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer, tool


class WeatherServer(SimpleResourcesServer):
    """A server that rewards every rollout. It shows how to add a tool, not how to grade."""

    @tool
    async def get_weather(self, city: str) -> str:
        """Return today's weather in a city."""
        return f"The weather in {city} is cold."

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


if __name__ == "__main__":
    WeatherServer.run_webserver()
