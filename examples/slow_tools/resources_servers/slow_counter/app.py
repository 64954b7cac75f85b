"""The counter of example_session_state_mgmt behind a slow tool, as one that compiles, searches or opens a browser."""

import asyncio
import random

from nemo_gym import tool
from resources_servers.example_session_state_mgmt.app import Counter, CounterServer

MEAN_S = 0.25
"""The waits are distributed exponentially: of 64 at once, the longest takes five times as long on average."""


class SlowCounterServer(CounterServer):
    """A counter whose changes take time."""

    @tool
    async def increment_counter(self, count: int, counter: Counter) -> dict[str, bool]:
        """Add a number to the counter."""
        await asyncio.sleep(random.expovariate(1 / MEAN_S))
        counter.count += count
        return {"success": True}


if __name__ == "__main__":
    SlowCounterServer.run_webserver()
