"""A run that other machines can reach accepts only calls with its token."""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.running import RunRecord
from nemo_gym.config.access import configured_token, needs_token
from nemo_gym.config.hosts import is_loopback, leads_to
from nemo_gym.config.loading import load
from nemo_gym.config.masking import is_secret_key
from nemo_gym.config.models import RunConfig
from nemo_gym.config.sandbox_networks import networked_sandbox
from nemo_gym.errors import ConfigError, HeadServerNotFoundError
from nemo_gym.schemas.rollout import RUN_TOKEN_HEADER
from tests.each_case import each_case

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-the-users-own-0123456789"
CLOSED = [
    ("GET", "/tools"), ("POST", "/verify"), ("POST", "/run"), ("GET", "/metrics"), ("GET", "/openapi.json"),
    ("GET", "/server_instances"), ("GET", "/global_config_dict_yaml"), ("GET", "/run"), ("POST", "/"),
    ("GET", "/no/such/path"),
]  # fmt: skip
ROW = {"responses_create_params": {"input": "hi"}, "agent_ref": {"name": "asker"}}
AGENT = """
from nemo_gym import (
    BaseRunRequest, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming, SimpleResponsesAPIAgent,
)
from pydantic import ConfigDict
from starlette.requests import Request


class Row(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class Asker(SimpleResponsesAPIAgent):
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, request: Request, body: Row) -> dict:
        response = {"id": "r", "created_at": 0, "model": "m", "output": [], "object": "response"}
        asked = {**body.model_dump(mode="json", exclude_unset=True), "response": response}
        reply = await self.server_client.post("plain", "/verify", json=asked)
        seen = [name for name in request.headers if "token" in name or name == "authorization"]
        return {**(await reply.json()), "token_headers_seen": seen}
"""


def answer(url, path="/", method="GET", headers=None, body=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=100)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def written(workplace):
    plain = workplace.environment()
    workplace.write("responses_api_agents/asker/app.py", AGENT)
    block = "asker:\n  responses_api_agents:\n    asker:\n      entrypoint: app.py\n"
    workplace.write("responses_api_agents/asker/configs/asker.yaml", block)
    workplace.write("rows.jsonl", json.dumps(ROW) + "\n")
    return plain.replace("]", ",responses_api_agents/asker/configs/asker.yaml]")


def record_of(workplace):
    (path,) = (Path(workplace.env["XDG_RUNTIME_DIR"]) / f"nemo_gym-{os.getuid()}").glob("*.json")
    return path, RunRecord.model_validate_json(path.read_bytes())


@pytest.fixture(scope="module", params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def open_run(request, shared_workplace):
    """Start a run with a generated token and one server that other machines can reach."""
    command = shared_workplace.start_servers(
        written(shared_workplace),
        "++plain.resources_servers.plain.host=0.0.0.0",
        f"+process_start_method={request.param}",
    )
    yield command, record_of(shared_workplace)[1]
    command.end()


def addresses(open_run):
    command, record = open_run
    servers = json.loads(answer(command.head, "/server_instances", headers={RUN_TOKEN_HEADER: record.run_token})[2])
    return [command.head, *(each["url"] for each in servers)]


@pytest.mark.parametrize("headers", [{}, {RUN_TOKEN_HEADER: "guessed"}, {"Authorization": "Bearer guessed"}])
def test_call_without_token_explains_what_to_send(open_run, headers):
    for url in addresses(open_run):
        for method, path in CLOSED:
            status, sent, body = answer(url, path, method, headers)
            assert status == 401, (url, path)
            assert sent["content-type"] == "application/problem+json"
            problem = json.loads(body)
            assert (problem["status"], RUN_TOKEN_HEADER in problem["detail"]) == (401, True)
            assert open_run[1].run_token not in problem["detail"]


def test_liveness_needs_no_token(open_run):
    for url in addresses(open_run):
        for path in ("/", "/livez", "/readyz", "/healthz", "/health"):
            for method in ("GET", "HEAD"):
                assert answer(url, path, method)[0] == 200


@pytest.mark.parametrize("header", [RUN_TOKEN_HEADER, "Authorization"])
def test_token_grants_access_and_is_hidden_from_handlers(open_run, header):
    _command, record = open_run
    value = record.run_token if header == RUN_TOKEN_HEADER else f"Bearer {record.run_token}"
    (agent,) = [url for url in addresses(open_run)[1:] if answer(url, "/tools", headers={header: value})[0] == 404]
    status, _, body = answer(
        agent, "/run", "POST", {header: value, "content-type": "application/json"}, json.dumps(ROW)
    )
    assert status == 200, body
    graded = json.loads(body)
    # The agent's call to the other server carried the token, but handlers never see it.
    assert (graded["reward"], graded["token_headers_seen"]) == (1.0, [])


def test_commands_of_the_same_user_find_the_token(open_run, shared_workplace, tmp_path):
    status = shared_workplace.run("ng_status")
    assert (status.code, status.err) == (0, "")
    output = tmp_path / "out.jsonl"
    collected = shared_workplace.run(
        "ng_collect_rollouts", "+input_jsonl_fpath=rows.jsonl", f"+output_jsonl_fpath={output}"
    )
    assert collected.code == 0, collected.err
    assert json.loads(output.read_text())["reward"] == 1.0


def test_commands_elsewhere_must_pass_the_token(open_run, shared_workplace, tmp_path):
    _command, record = open_run
    elsewhere = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = [f"+head_server.port={record.port}", "+head_server.host=127.0.0.1"]
    output = tmp_path / "out.jsonl"
    collect = ["+input_jsonl_fpath=rows.jsonl", f"+output_jsonl_fpath={output}", *words]
    for refused in (
        shared_workplace.run("ng_status", *words, **elsewhere),
        shared_workplace.run("ng_collect_rollouts", *collect, **elsewhere),
    ):
        assert refused.code == 1
        assert "--run_token " in refused.err
        assert "NEMO_GYM_RUN_TOKEN" in refused.err
    given = f"+run_token={record.run_token}"
    assert shared_workplace.run("ng_status", given, *words, **elsewhere).code == 0
    by_environment = elsewhere | {"NEMO_GYM_RUN_TOKEN": record.run_token}
    assert shared_workplace.run("ng_collect_rollouts", *collect, **by_environment).code == 0
    assert json.loads(output.read_text())["reward"] == 1.0


def test_only_the_user_can_read_the_record(open_run, shared_workplace):
    path, record = record_of(shared_workplace)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(record.run_token) >= 32


def test_token_is_never_shown(open_run, shared_workplace):
    command, record = open_run
    for process in shared_workplace.processes():
        assert record.run_token not in " ".join([*process.cmdline(), *process.environ().values()])
    assert record.run_token not in command.out + command.err
    config = answer(command.head, "/global_config_dict_yaml", headers={RUN_TOKEN_HEADER: record.run_token})
    assert (config[0], record.run_token.encode() in config[2]) == (200, False)


def test_run_on_loopback_requires_no_token(workplace):
    command = workplace.start_servers(written(workplace))
    assert record_of(workplace)[1].run_token is None
    assert answer(command.servers["plain"]["url"], "/tools")[0] == 200
    assert command.end().code == 0


def test_reachable_head_server_requires_a_token(workplace):
    command = workplace.start_servers(written(workplace), "+head_server.host=0.0.0.0")
    _, record = record_of(workplace)
    plain = json.loads(answer(
        command.head, "/server_instances", headers={RUN_TOKEN_HEADER: record.run_token})[2])[0]  # fmt: skip
    assert answer(plain["url"], "/verify", "POST")[0] == 401
    assert command.end().code == 0


def test_configured_token_is_required_on_loopback_too(workplace):
    workplace.write("env.yaml", f"run_token: {TOKEN}\n")
    command = workplace.start_servers(written(workplace))
    assert record_of(workplace)[1].run_token == TOKEN
    assert answer(command.head, "/server_instances")[0] == 401
    assert workplace.run("ng_status").code == 0
    dumped = workplace.run("ng_dump_config", written(workplace))
    assert re.search(r"run_token: '?\*+", dumped.out)
    assert TOKEN not in dumped.out + command.out + command.err
    assert command.end().code == 0


def test_loopback_can_require_the_token(workplace):
    command = workplace.start_servers(
        written(workplace), "+loopback_requires_token=true", "+allowed_hosts=[gym.internal]"
    )
    record = record_of(workplace)[1]
    token = {RUN_TOKEN_HEADER: record.run_token}
    plain = json.loads(answer(command.head, "/server_instances", headers=token)[2])[0]
    for url, path in ((command.head, "/server_instances"), (plain["url"], "/tools")):
        assert answer(url, path)[0] == 401
        for host, status in (("evil.example", 403), ("gym.internal", 200), ("localhost", 200)):
            assert answer(url, path, headers={**token, "Host": host})[0] == status, (url, host)
    assert workplace.run("ng_status").code == 0
    finished = workplace.run("ng_collect_rollouts", "+input_jsonl_fpath=rows.jsonl", "+output_jsonl_fpath=out.jsonl")
    assert finished.code == 0, finished.err
    assert command.end().code == 0


@each_case(
    ("words", "problem"),
    [
        (["+loopback_requires_token=maybe"], "loopback_requires_token: it must be a valid boolean"),
        (["+allow_policy_override=maybe"], "allow_policy_override: it must be a valid boolean, but is 'maybe'"),
        (["+loopback_requires_token=true", "+run_token=false"], "contradicts run_token: false"),
        (["+run_token=false", "+sandbox.docker.network=host"], "because of sandbox.docker.network: host"),
        (
            ["+loopback_requires_token=false", "+sandbox.apptainer.has_network=true"],
            "sandbox.apptainer.has_network: true",
        ),
        (["+allowed_hosts=gym.internal"], "must be a list of host names"),
        (["+allowed_hosts=[http://gym.internal]"], "without scheme"),
        (["+allowed_hosts=['*.internal']"], "without scheme"),
    ],
)
def test_invalid_access_settings_are_rejected(words, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)) as refused:
        load([], words, skip_dotenv=True)
    assert str(refused.value).startswith("command line: ")


@each_case(
    ("config", "setting"),
    [
        ({"sandbox": {"apptainer": {"has_network": True}}}, "sandbox.apptainer.has_network: true"),
        ({"sandbox": {"apptainer": {"create": {"has_network": "yes"}}}}, "sandbox.apptainer.create.has_network: yes"),
        ({"sandbox": {"bubblewrap": {"allow_unconfined": True}}}, "sandbox.bubblewrap.allow_unconfined: true"),
        (
            {"a": {"b": {"c": {"sandbox_provider": {"docker": {"network": "host"}}}}}},
            "a.b.c.sandbox_provider.docker.network: host",
        ),
        (
            {"other": {"docker": {"extra_run_args": ["--rm", "--network", "host"]}}},
            "other.docker.extra_run_args: ['--rm', '--network', 'host']",
        ),
        ({"other": {"docker": {"create": {"run_args": "--net=host"}}}}, "other.docker.create.run_args: --net=host"),
        ({"a": {"gateway_host": "0.0.0.0"}}, "a.gateway_host: 0.0.0.0"),
        ({"a": {"gateway_host": "::"}}, "a.gateway_host: ::"),
        ({"a": {"gateway_host": "localhost"}}, "a.gateway_host: localhost"),
        ({"a": [{"provider_options": {"network": "host"}}]}, "a.0.provider_options.network: host"),
        ({"sandbox": {"apptainer": {}, "docker": {"network": "none", "extra_run_args": ["--network=mine"]}}}, None),
        ({"a": {"has_network": False, "allow_unconfined": False, "gateway_host": "172.17.0.1"}}, None),
    ],
)
def test_sandbox_that_reaches_loopback_is_found(config, setting):
    assert networked_sandbox(config) == setting
    assert needs_token(RunConfig(servers={}, plain=config), ["127.0.0.1"]) is (setting is not None)


def test_run_whose_sandboxes_reach_loopback_requires_the_token(workplace):
    command = workplace.start_servers(written(workplace), "+sandbox.apptainer.has_network=true")
    assert "sandbox.apptainer.has_network: true: programs in sandboxes can reach the servers" in command.err
    token = {RUN_TOKEN_HEADER: record_of(workplace)[1].run_token}
    plain = json.loads(answer(command.head, "/server_instances", headers=token)[2])[0]
    for url, path in ((command.head, "/server_instances"), (plain["url"], "/tools")):
        assert answer(url, path)[0] == 401
        assert answer(url, path, headers=token)[0] == 200
    assert workplace.run("ng_status").code == 0
    assert command.end().code == 0


def test_end_to_end_run_uses_its_own_token(workplace, tmp_path):
    words = written(workplace)
    block = """asker:
  responses_api_agents:
    asker:
      entrypoint: app.py
      datasets: [{name: x, type: example, jsonl_fpath: rows.jsonl}]
"""
    workplace.write("responses_api_agents/asker/configs/asker.yaml", block)
    finished = workplace.run(
        "ng_e2e_collect_rollouts", words, "+default_host=0.0.0.0", "+split=example", "+head_server.port=0",
        f"+output_jsonl_fpath={tmp_path}/out.jsonl",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    assert json.loads((tmp_path / "out.jsonl").read_text())["reward"] == 1.0


def test_program_finds_the_token_or_explains_it(open_run, shared_workplace, monkeypatch, tmp_path):
    _, record = open_run
    head = type("Head", (), {"host": "127.0.0.1", "port": record.port})
    monkeypatch.setenv("XDG_RUNTIME_DIR", shared_workplace.env["XDG_RUNTIME_DIR"])
    assert ServerClient.load_from_global_config(head).agent_names() == ["asker"]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(HeadServerNotFoundError, match="NEMO_GYM_RUN_TOKEN"):
        ServerClient.load_from_global_config(head)
    assert ServerClient.load_from_global_config(head, record.run_token).agent_names() == ["asker"]


def test_closed_standalone_server_requires_a_configured_token(workplace):
    source = "from nemo_gym import SimpleResourcesServer, BaseVerifyRequest\n\n\nclass Alone(SimpleResourcesServer):\n"
    source += "    async def verify(self, body: BaseVerifyRequest) -> float:\n        return 1.0\n\n\n"
    workplace.environment("alone", source + "if __name__ == '__main__':\n    Alone.run_webserver()\n")
    refused = workplace.run("python", "resources_servers/alone/app.py", "++alone.resources_servers.alone.host=0.0.0.0")
    assert refused.code == 1
    assert "run_token" in refused.err
    assert "127.0.0.1" in refused.err
    closed = workplace.run("python", "resources_servers/alone/app.py", "+loopback_requires_token=true")
    assert closed.code == 1
    assert "loopback_requires_token closes its host 127.0.0.1" in closed.err


def test_run_token_false_opens_the_run_with_a_warning(workplace):
    command = workplace.start_servers(written(workplace), "+default_host=0.0.0.0", "+run_token=false")
    assert "run_token is false: everyone who can reach 0.0.0.0" in command.out + command.err
    assert record_of(workplace)[1].run_token is None
    assert answer(command.servers["plain"]["url"], "/tools")[0] == 200
    assert command.end().code == 0


def test_run_on_loopback_needs_no_warning(workplace):
    command = workplace.start_servers(written(workplace), "+run_token=false")
    assert "run_token" not in command.out + command.err
    assert command.end().code == 0


@pytest.mark.slow
def test_status_finds_a_run_at_every_address_of_this_machine(workplace, node_address):
    command = workplace.start_servers(written(workplace), "+head_server.host=0.0.0.0")
    port = record_of(workplace)[1].port
    for host in ["127.0.0.1", "localhost", *([node_address] if node_address else [])]:
        status = workplace.run("ng_status", f"+head_server.host={host}", f"+head_server.port={port}")
        assert (status.code, status.err) == (0, "")
    assert command.end().code == 0


@each_case(
    ("host", "listening", "expected"),
    [("127.0.0.1", "127.0.0.1", True), ("localhost", "127.0.0.1", True), ("127.0.0.1", "0.0.0.0", True),
     ("::1", "::", True), ("0.0.0.0", "0.0.0.0", True), ("no.such.host.invalid", "0.0.0.0", False),
     ("203.0.113.7", "0.0.0.0", False), ("127.0.0.1", "203.0.113.7", False), ("203.0.113.7", "127.0.0.1", False)],
)  # fmt: skip
def test_token_is_sent_to_this_machine_only(host, listening, expected):
    assert leads_to(host, listening) is expected


@each_case(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("", False), ("127.0.0.1.example.com", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognized(host, expected):
    assert is_loopback(host) is expected


@each_case("token", ["short", "with a blank in the midst", "no\nline-breaks-please-no", 1234567890123456])
def test_invalid_token_is_rejected_without_showing_it(token):
    with pytest.raises(ConfigError, match="at least 16") as refused:
        configured_token({"run_token": token})
    assert str(token) not in str(refused.value)


def test_token_key_is_a_secret():
    assert is_secret_key("run_token")
