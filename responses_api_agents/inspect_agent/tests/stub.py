#!/usr/bin/env python3
"""The worker without Inspect, for the agent's tests: each sample is played as its `do` says."""

import fcntl
import json
import os
import signal
import stat
import sys
import time
import urllib.request
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

spec = spec_from_file_location("worker", Path(__file__).parents[1] / "worker.py")
worker = module_from_spec(spec)
spec.loader.exec_module(worker)

TRACE = {
    "agent": "policy", "trainable": True, "ok": True, "stop_condition": "stop", "is_truncated": False,
    "errors": [], "rewards": {"match": [1.0, 1.0]}, "metrics": {}, "info": {}, "tools": [],
    "nodes": [
        {"message": {"role": "user", "content": "Go."}, "sampled": False},
        {"message": {"role": "assistant", "content": "Done."}, "sampled": True},
    ],
    "branches": [{"nodes": [0, 1], "trainable": True}],
}  # fmt: skip


def load(settings):
    match settings["args"].get("start"):
        case "unusable":
            raise ValueError("no task")
        case "exit":
            sys.exit(4)
        case "silent":
            time.sleep(3600)
    return settings["args"].get("size", 0)


def rows_of(size):
    for number in range(size):
        sample = {"id": number, "input": f"{number}?", "target": "7"}
        yield {"messages": [{"role": "user", "content": f"{number}?"}], "sample": sample}


def play(task, settings, asked):
    sample = asked["sample"]
    match sample.get("do"):
        case "exit":
            os._exit(3)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("it broke")
        case "not JSON":
            return {"episode": float("nan")}
        case "part":
            pipe = next(each for each in os.listdir("/proc/self/fd") if is_pipe_to_write(int(each)))
            os.write(int(pipe), b'{"episode"')
            os._exit(0)
        case "huge":
            return {"episode": "x" * settings["most_bytes"]}
        case "hang":
            Path(sample["file"]).write_text(str(os.getpid()))
            time.sleep(3600)
        case "flood":
            for _ in range(100):
                print("x" * 100_000)  # noqa: T201
                sys.stderr.write("x" * 100_000)
        case "no worker":
            os.kill(os.getppid(), signal.SIGKILL)
        case "stopped worker":
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(3600)
        case "grade":
            ask(asked["roles"]["grader"])
    ask(asked["base_url"])
    trace = {**TRACE, **sample.get("trace", {})}
    return {"episode": {"env": "stub", "ok": trace["ok"], "errors": [], "traces": [trace]}}


def is_pipe_to_write(number):
    with suppress(OSError):
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        return number > 2 and is_pipe and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def ask(url):
    body = json.dumps({"model": "policy", "input": "Go."}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/responses", body, {"content-type": "application/json"})
    ):
        pass


worker.main(load, rows_of, play)
