"""Tests that text from rows, models and servers does not control the terminal on which a command prints."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess

import orjson
import pytest

from nemo_gym.cli import printing, tables
from nemo_gym.text import VisibleFormatter, visible_json
from tests.conftest import PATIENCE_S, SCRIPTS
from tests.each_case import each_case

pytestmark = pytest.mark.slow

HOSTILE = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\x9b2J\x9d0;t\x9c\u202e\u2066\u200f\x08\x7f"
SHOWN = r"\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\x9b2J"
IN_JSON = r"\u001b]52;c;aGk=\u0007\u001b]0;title\u0007\u001b[2J\u009b2J"
FORBIDDEN = re.compile(
    "\x1b[]PX^_c]|\x1b\\[2J|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What may not reach a terminal. Styles (`ESC [ … m`) and cursor movements of the commands themselves may."""
SERVER = f"""
import sys

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

HOSTILE = {HOSTILE!r}
print("log " + HOSTILE, flush=True)


class VerifyRequest(BaseVerifyRequest):
    number: int


class Hostile(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        if body.number:
            raise ValueError("failure " + HOSTILE)
        return BaseVerifyResponse.grade(body, reward=1.0, **{{"score" + HOSTILE: 1.0}})
"""
AGENT = """
hostile_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: hostile}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: rows.jsonl}
"""


def at_terminal(workplace, *words, until=None):
    """Run a command at a pseudo-terminal and return what it prints. If `until` is printed, interrupt it."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [SCRIPTS / "ng", *words], cwd=workplace.folder, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
        env=workplace.env | {"TERM": "xterm-256color", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with os.fdopen(controller, "rb", buffering=0) as file:
        try:
            while chunk := file.read(1 << 16):
                shown += chunk
                if until is not None and until in shown:
                    process.terminate()
                    until = None
        except OSError:
            # The terminal is closed when the command has ended.
            pass
    process.wait(PATIENCE_S)
    return shown.decode()


@pytest.fixture(scope="module")
def configs(shared_workplace):
    rows = [{"responses_create_params": {"input": "Hi"}, "number": number} for number in range(2)]
    shared_workplace.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    shared_workplace.environment("hostile", SERVER)
    shared_workplace.write("agent.yaml", AGENT)
    model = "responses_api_models/sample_model/configs/sample_model.yaml"
    return f"+config_paths=[resources_servers/hostile/configs/hostile.yaml,agent.yaml,{model}]"


@pytest.fixture(scope="module")
def collected(shared_workplace, configs):
    return at_terminal(
        shared_workplace, "eval", "run", configs, "+split=example", "+output_jsonl_fpath=x.jsonl", "+max_attempts=1",
        "+head_server.port=0", "-v",
    )  # fmt: skip


def check(shown, expected=SHOWN):
    assert expected in shown, shown
    assert not FORBIDDEN.search(shown), repr(shown)


def test_failures_and_metrics_of_a_run_are_harmless(collected):
    check(collected, f"failure {SHOWN}")
    check(collected, f"score{SHOWN}")


def test_relayed_log_lines_are_harmless(shared_workplace, configs):
    shown = at_terminal(shared_workplace, "env", "start", configs, "+head_server.port=0", until=b"head server: ")
    check(shown, f"log {SHOWN}")


@each_case(
    ("words", "expected"),
    [
        (("show", "x.jsonl"), f"score{SHOWN}"),
        (("show", "x.jsonl", "--json"), f"score{IN_JSON}"),
        (("compare", "x.jsonl", "x.jsonl", "--metric", f"score{HOSTILE}"), f"score{SHOWN}"),
    ],
)
def test_results_are_harmless(shared_workplace, collected, words, expected):
    check(at_terminal(shared_workplace, "eval", *words), expected)


@pytest.mark.parametrize("stream", ["out", "err"])
def test_pipes_get_visible_characters_too(capsys, stream):
    {"out": printing.say, "err": printing.note}[stream](HOSTILE)
    check(getattr(capsys.readouterr(), stream))


def test_cells_are_neither_markup_nor_control(capsys):
    table = tables.Table("name")
    table.add_row(f"[bold]{HOSTILE}")
    tables.show(table)
    shown = capsys.readouterr().out
    check(shown)
    assert "[bold]" in shown


def test_json_stays_the_same_value(capsys):
    value = {HOSTILE: [HOSTILE, "\U000e0041"]}
    printing.say_json(value)
    shown = capsys.readouterr().out
    assert not FORBIDDEN.search(shown)
    assert orjson.loads(shown) == value
    assert orjson.loads(visible_json(orjson.dumps(value).decode())) == value


def test_logged_messages_are_harmless():
    check(VisibleFormatter().format(logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,)})))
