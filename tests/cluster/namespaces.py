"""Commands on network namespaces and on the interfaces between them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 200.0
"""Longer than the product waits for servers that start or move (120 s), as it has to on a busy machine."""


class CommandFailed(Exception):
    """A failure of `ip` or another command that sets up the network."""


def remove(bridge: str) -> None:
    """Remove a network, including the processes of its hosts."""
    listed = ip("netns", "list").split()
    for namespace in (name for name in listed if re.fullmatch(rf"{bridge}-\d+m?", name)):
        kill_in(namespace)
        ip("netns", "delete", namespace)
        shutil.rmtree(Path("/etc/netns", namespace), ignore_errors=True)
    links = [link["ifname"] for link in json.loads(ip("-j", "link", "show"))]
    for link in (name for name in links if name == bridge or name.startswith(f"{bridge}-")):
        # Deleting one end of a cable deletes the other one.
        with suppress(CommandFailed):
            ip("link", "delete", link)
    for folder in Path("/tmp").glob(f"{bridge}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def pids_in(namespace: str) -> list[int]:
    """Return the processes in a namespace."""
    return [int(pid) for pid in ip("netns", "pids", namespace).split()]


def kill_in(namespace: str) -> None:
    """Kill every process in a namespace, also those that are started meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while pids := pids_in(namespace):
        assert time.monotonic() < deadline, f"processes in {namespace} cannot be killed: {pids}"
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def ip(*words: str) -> str:
    """Run `ip` and return its output."""
    return _output(["ip", *words])


def within(namespace: str, *words: str, text: str | None = None) -> str:
    """Run a command in a namespace, with this input, and return its output."""
    return _output(["ip", "netns", "exec", namespace, *words], text)


def _output(words: list[str], text: str | None = None) -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise CommandFailed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
