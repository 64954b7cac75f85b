"""Play games of a library, each in a process of its own, with text lines of JSON.

The libraries draw random numbers from the generators of the process, so two games in one process would change each
other. The library is imported once, and the process of a game is forked from it. This program runs in the library's
own interpreter and imports nothing of nemo_gym: `python serve.py LIBRARY`, with a Unix socket as its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import re
import signal
import socket
import sys
import threading
from queue import SimpleQueue
from typing import Any

LONGEST_PROBLEM = 400
_ESCAPE = re.compile(r"\x1b?\[\d+m")
_NLTK = re.compile(r"nltk\.download\('([\w.]+)'\)")


class NotPlayable(Exception):
    """A game that the library does not have, or that is not supported here."""


def seed_all(seed: int) -> None:
    """Seed the random numbers of the process, because libraries draw some of them before their own reset."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def main(library: str) -> None:
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        loader = importlib.import_module(f"{library}_game")
    except Exception as error:  # noqa: BLE001 - the import of a package may raise anything
        control.sendall(_line({"problem": problem_of(error), "is_missing": isinstance(error, ModuleNotFoundError)}))
        return
    control.sendall(_line({}))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as link:
                if os.fork() == 0:
                    control.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _play_and_exit(loader, link)


def _play_and_exit(loader: Any, link: socket.socket) -> None:
    try:
        requests: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_listen, args=(link, requests), daemon=True).start()
        game = None
        while True:
            asked = json.loads(requests.get())
            try:
                if game is None:
                    seed_all(asked["seed"])
                    if asked["roles"] and not hasattr(loader.Game, "info"):
                        raise NotPlayable("only TextArena has games of several agents (`players` of the agent)")
                    game = loader.Game(asked)
                    answer = {"observation": game.beginning}
                else:
                    observation, reward, terminated, truncated = game.step(asked["action"])
                    answer = {
                        "observation": observation,
                        "reward": float(reward),
                        "terminated": bool(terminated),
                        "truncated": bool(truncated),
                    }
                answer["info"] = getattr(game, "info", {})
            except BaseException as error:  # noqa: BLE001 - as may its games, also SystemExit
                answer = {"problem": problem_of(error), "is_task": isinstance(error, NotPlayable)}
            link.sendall(_line(answer))
    finally:
        os._exit(0)


def _listen(link: socket.socket, requests: SimpleQueue[bytes]) -> None:
    with link.makefile("rb") as lines:
        for line in lines:
            requests.put(line)
    # The server no longer wants the game, which may hang in a step.
    os._exit(0)


def problem_of(error: BaseException) -> str:
    """Describe an error of a library in one line."""
    text = _ESCAPE.sub("", str(error))
    if missing := _NLTK.search(text):
        return f"needs data of NLTK that is not installed. Run: python -m nltk.downloader {missing[1]}"
    if isinstance(error, NotPlayable):
        return text
    return f"{type(error).__name__}: {' '.join(text.split())}"[:LONGEST_PROBLEM]


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


if __name__ == "__main__":
    # The loaders import names of this file, which must not exist twice.
    sys.modules["serve"] = sys.modules["__main__"]
    main(sys.argv[1])
