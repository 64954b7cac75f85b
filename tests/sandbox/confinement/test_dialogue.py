"""Processes that get one input, write output, and are gone afterwards."""

import sys
import threading
import time

import psutil
import pytest

from nemo_gym.sandbox.confinement.dialogue import ERROR_TAIL, Dialogue
from tests.conftest import PATIENCE_S

MORE = 1_000_000
"""More bytes than a pipe holds."""
MARKER = "a process of these tests"


def held(code, sent=b"", *, most_bytes=10 * MORE, within_s=100.0, dialogue=None):
    command = [sys.executable, "-c", code, MARKER]
    return (dialogue or Dialogue()).hold(command, sent, env={}, most_bytes=most_bytes, within_s=within_s)


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    assert [child for child in psutil.Process().children() if MARKER in child.cmdline()] == []


def test_long_input_is_echoed():
    sent = bytes(range(256)) * (MORE // 256)
    said = held(f"import sys; sys.stdout.buffer.write(sys.stdin.buffer.read({len(sent)}))", sent)
    assert (said.out == sent, said.errors, said.is_late) == (True, "", False)


def test_process_may_ignore_its_input():
    assert held("print(1)", bytes(MORE)).out == b"1\n"
    assert held("import os, time; os.close(0); time.sleep(0.2); print(1)", bytes(MORE)).out == b"1\n"


def test_end_of_stderr_is_returned():
    said = held(f"import sys; sys.stderr.write('x' * {MORE} + 'no'); sys.exit(3)")
    assert said.errors == "x" * (ERROR_TAIL - 2) + "no"


def test_long_output_is_truncated_and_process_killed():
    said = held("while True: print('x' * 1000)", most_bytes=100_000)
    assert 100_000 < len(said.out) < 300_000


def test_late_process_is_killed_with_its_children():
    code = "import subprocess, time; subprocess.Popen(['sleep', '600']); print(1, flush=True); time.sleep(600)"
    began = time.monotonic()
    said = held(code, within_s=5.0)
    assert (said.out, said.is_late) == (b"1\n", True)
    assert time.monotonic() - began < PATIENCE_S


def test_give_up_kills_or_prevents_start():
    dialogue = Dialogue()
    outputs = []
    thread = threading.Thread(target=lambda: outputs.append(held("import time; time.sleep(600)", dialogue=dialogue)))
    began = time.monotonic()
    thread.start()
    time.sleep(0.3)
    dialogue.give_up()
    thread.join(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert [said.out for said in outputs] == [b""]
    assert held("print(1)", dialogue=dialogue).out == b""


def test_failed_start_raises_oserror():
    with pytest.raises(OSError, match="nowhere"):
        Dialogue().hold(["/nowhere"], b"", env={}, most_bytes=1, within_s=1)
