"""Servers of the package openenv, for test_openenv.py: prints their ports as JSON, then serves until it is stopped."""

import asyncio
import importlib
import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Literal

import uvicorn
from fastmcp import FastMCP
from openenv import cli
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

NAMES = {"__ENV_NAME__": "echo_play", "__ENV_CLASS_NAME__": "EchoPlay", "__ENV_TITLE_NAME__": "Echo Play"}


class Turn(Action):
    """One turn of the dial."""

    direction: Literal["left", "right"]


class Dial(Observation):
    position: int


class DialEnvironment(Environment):
    """Turn the dial to the right until it shows 3. Serves one session at a time."""

    def __init__(self):
        self.position = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        if seed == 13:
            raise RuntimeError("13 is not on the dial")
        self.position = (seed or 0) % 3
        return Dial(position=self.position)

    def step(self, action, timeout_s=None, **kwargs):
        if action.direction == "left" and self.position == 0:
            raise RuntimeError("the dial is at its left end")
        self.position += 1 if action.direction == "right" else -1
        return Dial(position=self.position, reward=float(self.position == 3), done=self.position == 3)

    @property
    def state(self):
        return State(step_count=self.position)


class AddingEnvironment(MCPEnvironment):
    """Submit a sum. The tasks are in two splits."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("adding")
        self.expected, self.answer = 0, None

        @mcp.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @mcp.tool
        def submit(value: int) -> str:
            """Submit the sum."""
            self.answer = value
            return "submitted"

        super().__init__(mcp)

    def list_splits(self):
        return ["train", "test"]

    def num_tasks(self, split):
        return {"train": 5, "test": 3}[split]

    def reset(self, seed=None, episode_id=None, split="train", index=0, **kwargs):
        self.expected, self.answer = 10 + index, None
        return Observation(metadata={"question": f"10 + {index}?"})

    def step(self, action, timeout_s=None, **kwargs):
        return self.graded(super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self.graded(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def graded(self, observation):
        if self.answer is not None:
            observation.reward, observation.done = float(self.answer == self.expected), True
        return observation

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise ValueError("only tools can be called")

    @property
    def state(self):
        return State()


def broken_environment():
    raise RuntimeError("no GPU")


def template_app(folder):
    """Return the app of the template in the wheel, as `openenv init echo_play` would write it."""
    source = Path(cli.__file__).parent / "templates" / "openenv_env"
    target = Path(folder) / "echo_play"
    for path in (each for each in source.rglob("*") if each.is_file() and "__pycache__" not in each.parts):
        name, text = str(path.relative_to(source)), path.read_text()
        for placeholder, value in NAMES.items():
            name, text = name.replace(placeholder, value), text.replace(placeholder, value)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    sys.path.insert(0, folder)
    return importlib.import_module("echo_play.server.app").app


async def serve(folder):
    apps = {
        "template": template_app(folder),
        "dial": create_app(DialEnvironment, Turn, Dial, env_name="dial"),
        "adding": create_app(AddingEnvironment, Action, CallToolObservation, env_name="adding", max_concurrent_envs=8),
        "calling": create_app(
            AddingEnvironment, CallToolAction, CallToolObservation, env_name="calling", max_concurrent_envs=8
        ),
        "broken": create_app(broken_environment, Turn, Dial, env_name="broken"),
    }
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in apps}
    print(json.dumps({name: each.getsockname()[1] for name, each in sockets.items()}), flush=True)  # noqa: T201 - read by the test
    servers = [uvicorn.Server(uvicorn.Config(app, log_level="warning")) for app in apps.values()]
    await asyncio.gather(
        *(server.serve(sockets=[each]) for server, each in zip(servers, sockets.values(), strict=True))
    )


if __name__ == "__main__":
    shutil.rmtree(Path(sys.argv[1]) / "echo_play", ignore_errors=True)
    asyncio.run(serve(sys.argv[1]))
