"""Configured keys never appear in a run's files, output, logs or processes."""

from __future__ import annotations

import http.server
import json
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

from nemo_gym.config.secret_values import SecretValues
from tests.each_case import each_case

pytestmark = pytest.mark.slow

POLICY_KEY = "Zq7-made-up-policy-key-4411"
DATABASE_PASSWORD = 'p"w/d made up 9922'
OTHERS_KEY = "made-up-key-of-a-judge-5533"
ENVIRONMENT_KEY = "made-up-key-of-the-environment-6644"
HEADER_KEY = "made-up-header-credential-7755"
URL_PASSWORD = "made-up-url-password-8866"
PATTERN_KEY = "sk-madeUp0123456789abcd"
ALL = (POLICY_KEY, DATABASE_PASSWORD, OTHERS_KEY, ENVIRONMENT_KEY, HEADER_KEY, URL_PASSWORD, PATTERN_KEY)
FORMS = {form for key in ALL for form in (key, json.dumps(key)[1:-1])}

LEAKING = """
import logging
import os
import sys

from nemo_gym import BaseResourcesServerConfig, BaseSeedSessionRequest, BaseVerifyRequest, SimpleResourcesServer
from pydantic import ConfigDict


class Config(BaseResourcesServerConfig):
    model_config = ConfigDict(extra="allow")
    database_password: str
    headers: dict[str, str]
    address: str
    note: str
    own_key: str
    max_tokens: int


class Leaking(SimpleResourcesServer):
    config: Config

    async def seed_session(self, body: BaseSeedSessionRequest) -> None:
        held = [self.config.database_password, *self.config.headers.values(), self.config.address, self.config.note,
                self.config.own_key, os.environ["LEAKING_API_KEY"]]
        logging.getLogger("leaking").info("settings: %r max_tokens=%d", held, self.config.max_tokens)
        print("plainly", *held, file=sys.stderr)

    async def verify(self, body: BaseVerifyRequest) -> float:
        if body.response.last_text == "fail":
            raise RuntimeError(f"cannot connect as {self.config.database_password} at {self.config.address}")
        return 1.0
"""
CONFIG = f"""
policy_api_key: {POLICY_KEY}
policy_model_name: tiny
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${{policy_base_url}}
      openai_api_key: ${{policy_api_key}}
      openai_model: ${{policy_model_name}}
bystander:
  resources_servers:
    leaking:
      entrypoint: app.py
      database_password: not-a-secret-of-anyone
      headers: {{}}
      address: http://127.0.0.1
      note: nothing
      own_key: nothing
      max_tokens: 7
leaking:
  resources_servers:
    leaking:
      entrypoint: app.py
      database_password: '{DATABASE_PASSWORD}'
      headers: {{Authorization: Bearer {HEADER_KEY}}}
      address: http://user:{URL_PASSWORD}@127.0.0.1/db
      note: {PATTERN_KEY}
      own_key: ${{oc.env:LEAKING_API_KEY}}
      judge_api_key: {OTHERS_KEY}
      max_tokens: 2048
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: leaking}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets: [{{name: rows, type: example, jsonl_fpath: rows.jsonl}}]
"""


class Echoing(http.server.BaseHTTPRequestHandler):
    """A model endpoint that echoes the key it received in its answer or its error."""

    protocol_version = "HTTP/1.1"
    was_asked = threading.Event()
    may_answer = threading.Event()

    def do_GET(self):
        self._send(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.was_asked.set()
        self.may_answer.wait(100)
        wanted = json.dumps(asked["input"])
        if "ERROR" in wanted:
            self._send(401, {"error": {"message": f"Incorrect key provided: {self.headers['authorization']}"}})
            return
        text = "fail" if "FAIL" in wanted else f"You sent {self.headers['authorization']}"
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
                   "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
        self._send(200, {
            "id": "r", "object": "response", "created_at": 0, "model": "tiny", "output": [message],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8,
                      "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
        })  # fmt: skip

    def _send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Disable request logging."""


@pytest.fixture(scope="module")
def endpoint():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echoing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def collected(request, shared_workplace, endpoint):
    """Run a collection; return its result, its output and the visible text of its processes."""
    place = shared_workplace
    place.write("resources_servers/leaking/app.py", LEAKING)
    place.write("config.yaml", CONFIG)
    inputs = ("well", "FAIL", "ERROR")
    rows = [{"responses_create_params": {"input": text, "max_output_tokens": 64}} for text in inputs]
    place.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    output = place.folder / request.param / "out.jsonl"
    words = [
        "+config_paths=[config.yaml]", "+split=example", f"+output_jsonl_fpath={output}", "+head_server.port=0",
        f"+policy_base_url={endpoint}", f"+process_start_method={request.param}", "+default_host=0.0.0.0",
        "+max_attempts=1",
    ]  # fmt: skip
    command = place.start("ng_e2e_collect_rollouts", *words, LEAKING_API_KEY=ENVIRONMENT_KEY)
    visible: dict[int, str] = {}
    Echoing.was_asked.clear()
    Echoing.may_answer.clear()
    while command.process.poll() is None:
        # The model answers only when all servers have been looked at.
        was_asked = Echoing.was_asked.is_set()
        for process in place.processes():
            if process.pid != command.pid:
                try:
                    visible[process.pid] = " ".join([*process.cmdline(), *map("=".join, process.environ().items())])
                except psutil.Error:
                    continue
        if was_asked:
            Echoing.may_answer.set()
        time.sleep(0.02)
    return command.wait(), output, visible


def texts(place, output):
    for folder in (output.parent, Path(place.env["XDG_RUNTIME_DIR"])):
        for path in folder.rglob("*"):
            if path.is_file():
                yield path, path.read_text(errors="replace")


def log_of(output, place):
    return (output.parent / "out_run" / "logs" / "leaking.log").read_text()


def test_run_used_every_key(collected, shared_workplace):
    finished, output, visible = collected
    assert finished.code == 0, finished.err
    (scored,) = map(json.loads, output.read_text().splitlines())
    failed = list(map(json.loads, output.with_name("out_failures.jsonl").read_text().splitlines()))
    assert scored["reward"] == 1.0
    assert {each["_ng_failure_class"] for each in failed} == {"environment_failed", "model_failed"}
    log = log_of(output, shared_workplace)
    assert "Traceback" in log
    assert "plainly **** " in log
    assert len(visible) >= 5


def test_files_and_output_contain_no_key(collected, shared_workplace):
    finished, output, _ = collected
    seen = dict(texts(shared_workplace, output)) | {"out": finished.out, "err": finished.err}
    assert len(seen) > 10
    assert [(place, key) for place, text in seen.items() for key in FORMS if key in text] == []


def test_processes_show_no_key(collected):
    assert [(pid, key) for pid, text in collected[2].items() for key in FORMS if key in text] == []


def test_values_that_are_not_secret_stay(collected, shared_workplace):
    _, output, _ = collected
    (scored,) = map(json.loads, output.read_text().splitlines())
    assert scored["responses_create_params"]["max_output_tokens"] == 64
    assert scored["response"]["usage"]["output_tokens"] == 5
    assert "max_tokens=2048" in log_of(output, shared_workplace)
    assert scored["response"]["output"][0]["content"][0]["text"] == "You sent Bearer ****"


def test_failure_messages_mask_the_key(collected):
    _, output, _ = collected
    messages = {
        each["_ng_failure_class"]: each["_ng_failure_message"]
        for each in map(json.loads, output.with_name("out_failures.jsonl").read_text().splitlines())
    }
    assert "Incorrect key provided: Bearer " in messages["model_failed"]
    assert POLICY_KEY not in messages["model_failed"]
    assert "cannot connect as **** at http://" in messages["environment_failed"]


def test_printed_config_and_errors_contain_no_key(shared_workplace, endpoint):
    env = {"LEAKING_API_KEY": ENVIRONMENT_KEY}
    dumped = shared_workplace.run(
        "ng_dump_config", "+config_paths=[config.yaml]", f"+policy_base_url={endpoint}", **env
    )
    assert dumped.code == 0, dumped.err
    assert [key for key in FORMS if key in dumped.out + dumped.err] == []
    assert yaml.safe_load(dumped.out)["leaking"]["resources_servers"]["leaking"]["max_tokens"] == 2048
    wrong = shared_workplace.run(
        "ng_validate", "+config_paths=[config.yaml]", f"+policy_base_url={endpoint}",
        "++leaking.resources_servers.leaking.max_tokens=many", **env,
    )  # fmt: skip
    assert wrong.code == 1
    assert "max_tokens" in wrong.err
    assert [key for key in FORMS if key in wrong.out + wrong.err] == []


def test_error_of_a_dead_server_contains_no_key(shared_workplace):
    dying = LEAKING.replace(
        "class Leaking", "raise RuntimeError('no ' + open('../../config.yaml').read())\n\n\nclass L"
    )
    word = shared_workplace.environment("dying", dying, f"database_password: '{DATABASE_PASSWORD}'")
    finished = shared_workplace.run(
        "ng_run", word, f"+policy_api_key={POLICY_KEY}", f"+judge_api_key={OTHERS_KEY}", "+head_server.port=0"
    )
    assert finished.code == 1
    assert "RuntimeError" in finished.err
    # The error quotes the whole file; only keys in this run's own configuration can be masked.
    assert [key for key in (POLICY_KEY, DATABASE_PASSWORD, OTHERS_KEY, PATTERN_KEY) if key in finished.err] == []


@each_case(
    ("settings", "text", "shown"),
    [
        ({"api_key": "abc-def-123"}, "with abc-def-123.", "with ****."),
        ({"nested": [{"passwords": ["first-one", "other-one"]}]}, "first-one, other-one", "****, ****"),
        ({"a_token": "abcdefgh", "b_token": "abcdefghij"}, "abcdefghij abcdefgh", "**** ****"),
        ({"authorization": "Basic dXNlcjpwYXNz"}, "sent dXNlcjpwYXNz", "sent ****"),
        ({"url": "http://me:pass-word@host"}, "me: pass-word", "me: ****"),
        ({"note": "hf_abcdefgh"}, "hf_abcdefgh and hf_ijklmnop", "**** and ****"),
        ({"password": 12345678}, "12345678", "****"),
        ({"secret": "a b/cdü"}, '{"x": "a b/cd\\u00fc"} a%20b%2Fcd%C3%BC', '{"x": "****"} ****'),
        ({"private_key": "-----BEGIN\nabcdefghijk\n-----END"}, "log abcdefghijk", "log ****"),
        ({"max_tokens": "100000", "token_ids": ["100001"]}, "100000 100001", "100000 100001"),
        ({"api_key": "x", "password": "", "secret": None, "hf_token": True}, "x True None", "x True None"),
        ({"api_key": "dummy_key"}, "a dummy_key", "a dummy_key"),
    ],
)
def test_configured_values_are_masked_in_any_text(settings, text, shown):
    assert SecretValues.of(settings).mask(text) == shown
