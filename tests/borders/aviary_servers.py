"""Aviary task servers, for test_aviary.py: prints their ports as JSON, then serves until it is stopped."""

import asyncio
import json
import socket

import uvicorn
from aviary.core import DummyTaskDataset, Environment, Message, TaskDataset, TaskDatasetServer, Tool

from resources_servers.aviary.gsm8k_env import Gsm8kEnvironment
from resources_servers.aviary.museum_env import NightRounds


class Fragile(Environment[None]):
    """An environment whose reset or step fails, by its number."""

    def __init__(self, number):
        self.number = number
        self.tools = [Tool.from_function(self.push)]

    def push(self, times: int) -> str:
        """Push.

        Args:
            times: How often.
        """
        return f"pushed {times} times"

    async def reset(self):
        if self.number == 0:
            raise ValueError("the lamp is broken")
        return [Message(content="Push.")], self.tools

    async def step(self, action):
        if self.number == 1:
            raise ValueError("the switch is broken")
        reward = float("nan") if self.number == 2 else 1.0
        return await self.exec_tool_calls(action), reward, True, False


class FragileDataset(TaskDataset[Fragile]):
    def get_new_env_by_idx(self, idx):
        return [Fragile(number) for number in range(4)][idx]

    def __len__(self):
        return 4


class Problems(TaskDataset[Gsm8kEnvironment]):
    """Word problems that come with the rows."""

    def get_new_env_by_args(self, **kwargs):
        return Gsm8kEnvironment(**kwargs)


async def serve():
    datasets = {
        "museum": NightRounds(),
        "dummy": DummyTaskDataset(),
        "fragile": FragileDataset(),
        "problems": Problems(),
    }
    apps = {
        name: TaskDatasetServer(dataset, api_key="open sesame" if name == "museum" else None).app
        for name, dataset in datasets.items()
    }
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in apps}
    print(json.dumps({name: each.getsockname()[1] for name, each in sockets.items()}), flush=True)  # noqa: T201 - read by the test
    servers = [uvicorn.Server(uvicorn.Config(app, log_level="critical")) for app in apps.values()]
    await asyncio.gather(
        *(server.serve(sockets=[each]) for server, each in zip(servers, sockets.values(), strict=True))
    )


if __name__ == "__main__":
    asyncio.run(serve())
