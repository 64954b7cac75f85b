#!/usr/bin/env python3
"""A worker without verifiers, for the agent's tests: it plays each episode as the task's `do` says."""

import json
import os
import sys
import time

TRACE = {
    "agent": "agent", "trainable": True, "ok": True, "stop_condition": "agent_completed", "is_truncated": False,
    "errors": [], "rewards": {"right": [1.0, 1.0]}, "metrics": {}, "info": {}, "tools": [],
    "nodes": [
        {"message": {"role": "user", "content": "Go."}, "sampled": False},
        {"message": {"role": "assistant", "content": "Done."}, "sampled": True},
    ],
    "branches": [{"nodes": [0, 1], "trainable": True}],
}  # fmt: skip


def say(message):
    sys.stdout.buffer.write((json.dumps(message) if isinstance(message, dict) else message).encode() + b"\n")
    sys.stdout.flush()


def ask_the_model(url):
    import urllib.request

    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Go."}]}).encode()
    request = urllib.request.Request(f"{url}/responses", body.replace(b"messages", b"input"))
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as reply:
        reply.read()


def play(key, asked):
    task = asked["task"]
    trace = {**TRACE, **task.get("trace", {})}
    episode = {"env": "stub", "ok": True, "errors": [], "traces": [trace], **task.get("episode", {})}
    match task.get("do"):
        case "exit":
            sys.stderr.write("out of memory\n")
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "close":
            os.close(1)
            time.sleep(3600)
        case "not JSON":
            say("Traceback (most recent call last)")
        case "not an object":
            say("[1, 2]")
        case "endless line":
            say("x" * task["length"])
        case "flood":
            for _ in range(100):
                sys.stderr.write("x" * 100_000)
                say({"id": "another", "episode": {}})
        case "no result":
            say({"id": key})
            return
        case "wait":
            return
    if task.get("asks", True):
        ask_the_model(asked["base_url"])
    say({"id": key, "episode": episode})


settings = json.loads(sys.stdin.readline())
start = settings["taskset"].get("start")
if start == "unusable":
    say({"unusable": "ModuleNotFoundError: no taskset"})
elif start == "exit":
    sys.exit(4)
elif start == "silent":
    time.sleep(3600)
elif start == "wrong":
    say({"hello": 1})
elif settings["list"]:
    for number in range(settings["taskset"]["size"]):
        say({"row": {"messages": [{"role": "user", "content": f"{number}?"}], "task": {"idx": number}}})
    say({"ready": 1} if start != "unfinished" else {"hello": 1})
else:
    say({"ready": 1})
    for line in sys.stdin:
        message = json.loads(line)
        if "run" in message:
            play(message["id"], message["run"])
        else:
            open(settings["taskset"]["log"], "a").write("cancelled\n")  # noqa: SIM115
