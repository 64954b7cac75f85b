"""Start a rollout collection in the background, for `--detach`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from nemo_gym.cli import printing
from nemo_gym.rollouts.control.registry import Collection, collections_here
from nemo_gym.rollouts.job import RunFiles

IN_BACKGROUND_ENV_VAR = "NEMO_GYM_IN_BACKGROUND"
"""An environment variable that marks the background process. This process also has `--detach` in its command line.
Without the variable, it would start another background process."""
START_S = 20.0
"""Seconds to wait until the collection is registered. Preparing the data may take longer, but errors in the
configuration appear within this time."""
POLL_S = 0.1


def is_in_background() -> bool:
    """Return whether this process was started by `start_in_background`."""
    return IN_BACKGROUND_ENV_VAR in os.environ


def start_in_background(output: Path) -> int:
    """Run this command again in the background, with its output in a log file.

    Return 0 once its collection is registered, or after `START_S`. If the background process ends before that, print
    its output and return its exit code.
    """
    files = RunFiles(results=output)
    log = files.output_of_command
    files.make_folder()
    with log.open("ab") as printed:
        begins_at = printed.tell()
        process = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env=os.environ | {IN_BACKGROUND_ENV_VAR: "1"},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while (collection := _collection_of(process.pid)) is None and time.monotonic() < deadline:
        if process.poll() is not None:
            printing.note(log.read_bytes()[begins_at:].decode(errors="replace").rstrip())
            return process.returncode
        time.sleep(POLL_S)
    name = f", run {collection.run_id}" if collection else ", still preparing its data"
    printing.say(f"collecting in the background: process {process.pid}{name}")
    printing.say(f"rollouts: {output}")
    printing.say(f"printed:  {log}")
    printing.say(f"next:     ng eval ctl {output} status | ng eval wait {output}")
    return 0


def _collection_of(pid: int) -> Collection | None:
    return next((each for each in collections_here() if each.pid == pid), None)
