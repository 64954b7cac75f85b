"""A server of ors-sdk or openreward for test_ors.py: prints its port, then serves until it is stopped."""

import importlib
import os
import socket
import sys

import uvicorn
from pydantic import BaseModel

ORS = importlib.import_module({"ors": "ors", "openreward": "openreward.environments"}[sys.argv[1]])
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Word(BaseModel):
    text: str


class Words(ORS.Environment):
    """Say the task's word. `look` earns a quarter, and `say` ends the task."""

    def __init__(self, task_spec={}, secrets={}):  # noqa: B006 - the packages' signature
        super().__init__(task_spec, secrets)
        self.secrets = dict(secrets)

    @classmethod
    def list_splits(cls):
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split):
        return [{"word": f"{split}-{number}"} for number in range(5)]

    def get_prompt(self):
        return [ORS.TextBlock(text=f"Say {self.task_spec['word']}."), ORS.ImageBlock(data=PIXEL, mimeType="image/png")]

    @ORS.tool
    def look(self) -> ORS.ToolOutput:
        """Look at the picture."""
        return ORS.ToolOutput(blocks=[ORS.ImageBlock(data=PIXEL, mimeType="image/png")], reward=0.25)

    @ORS.tool
    def say(self, word: Word) -> ORS.ToolOutput:
        """Say a word."""
        if word.text == "crash":
            raise RuntimeError("a bug of the environment")
        text = self.secrets.get("KEY", "no secret") if word.text == "secret" else "x" * 10_000
        is_right = word.text == self.task_spec["word"]
        return ORS.ToolOutput(
            blocks=[ORS.TextBlock(text=text)], reward=float(is_right), finished=word.text != "secret"
        )

    async def score_group(self, candidates):
        return [float(len(each.messages[-1].blocks[0].text)) for each in candidates]


# Name IPPROTO_TCP, because only then does asyncio set TCP_NODELAY. Without it, each reply is delayed by 40 ms.
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)  # noqa: T201
    # The packages log to the standard output, which is not read after the port.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    served = uvicorn.Config(ORS.Server([Words]).app, log_level="warning")
    uvicorn.Server(served).run(sockets=[listener])
