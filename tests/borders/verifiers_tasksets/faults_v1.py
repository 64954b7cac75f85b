"""Tasks that fail, each in its own way, when they are scored."""

import asyncio
import os
import pathlib
import sys
import time

import verifiers.v1 as vf

__all__ = ["FaultsTaskset"]


class FaultData(vf.TaskData):
    fault: str
    file: str = ""


class FaultTask(vf.Task[FaultData]):
    @vf.reward
    async def scored(self, trace):
        match self.data.fault:
            case "raises":
                raise RuntimeError("the scorer is broken")
            case "dies":
                os._exit(7)
            case "hangs":
                time.sleep(3600)  # noqa: ASYNC251 - it blocks the loop
            case "is not finite":
                return float("nan")
            case "floods":
                for _ in range(200):
                    sys.stderr.write("x" * 100_000)
                    print("a line that is not a message")  # noqa: T201
            case "is huge":
                trace.info["large"] = "x" * 3_000_000
            case "waits":
                path = pathlib.Path(self.data.file)
                path.with_suffix(".begun").touch()
                try:
                    await asyncio.sleep(3600)
                finally:
                    path.touch()  # noqa: ASYNC240 - it is only one file
        return 1.0


class FaultsTaskset(vf.Taskset[FaultTask]):
    def load(self):
        for fault in ("nothing", "raises", "dies", "hangs", "is not finite", "floods", "is huge", "waits"):
            yield FaultTask(FaultData(prompt="Say something.", fault=fault), self.config.task)
