"""Rollouts see only their own session, and names cannot lead out of their folder."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from omegaconf import OmegaConf
from pydantic import Field

from nemo_gym import BaseSeedSessionRequest, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
from nemo_gym.calls.client import ServerClient
from nemo_gym.capture.store import CaptureStore
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.http.json_depth import is_deeper_than
from nemo_gym.launcher.base import ServerProcess
from nemo_gym.launcher.watch import Watcher
from nemo_gym.testing import make_server, on_a_port
from tests.each_case import each_case

ROLLOUTS = 64
STEPS = 12


class Notes(SessionState):
    """The numbers that one rollout has written."""

    owner: str = ""
    written: list[int] = Field(default_factory=list)


class SeedRequest(BaseSeedSessionRequest):
    owner: str


class Notebook(SimpleResourcesServer):
    """An environment that returns the owner of the session at every step."""

    async def seed_session(self, body: SeedRequest, notes: Notes) -> None:
        notes.owner = body.owner

    @tool
    async def write(self, number: int, notes: Notes) -> dict[str, object]:
        """Write a number and return everything written."""
        # Let other rollouts run in between.
        await asyncio.sleep(0.001 * (number % 3))
        notes.written = [*notes.written, number]
        return {"owner": notes.owner, "written": notes.written}

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0


def notebook(**settings):
    return make_server(Notebook, entrypoint="app.py", name="notebook", **settings)


@pytest.mark.parametrize("hosts", [["localhost"], ["127.0.0.1"], ["localhost", "127.0.0.1"]])
async def test_interleaved_rollouts_see_only_their_own_session(hosts):
    async with on_a_port(notebook()) as address:
        port = urlsplit(address).port
        # All rollouts share one client and its connections, and would share a cookie jar if it had one.
        names = {
            f"notebook_{host}": {"resources_servers": {"notebook": {"host": host, "port": port}}} for host in hosts
        }
        client = ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create(names)
        )

        async def rollout(number):
            server = f"notebook_{hosts[number % len(hosts)]}"
            reply = await client.post(server, "/seed_session", json={"owner": f"rollout {number}"})
            seen = []
            for step in range(STEPS):
                reply = await client.post(
                    server, "/write", json={"number": step * 100 + number}, cookies=reply.cookies
                )
                seen.append(await reply.json())
            return seen

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(rollout(number)) for number in range(ROLLOUTS)]
        finally:
            await client.aclose()
    for number, task in enumerate(tasks):
        written = [step * 100 + number for step in range(STEPS)]
        assert task.result() == [
            {"owner": f"rollout {number}", "written": written[: step + 1]} for step in range(STEPS)
        ]


async def test_missing_or_forged_cookie_gets_a_new_session():
    async with on_a_port(notebook()) as address:
        port = urlsplit(address).port
        block = {"notebook": {"resources_servers": {"notebook": {"host": "127.0.0.1", "port": port}}}}
        client = ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create(block)
        )
        seeded = await client.post("notebook", "/seed_session", json={"owner": "one"})
        stranger = await client.post("notebook", "/write", json={"number": 1})
        forged = {name: morsel.value[:-4] + "AAAA" for name, morsel in seeded.cookies.items()}
        forger = await client.post("notebook", "/write", json={"number": 2}, cookies=forged)
        assert [await stranger.json(), await forger.json()] == [
            {"owner": "", "written": [1]}, {"owner": "", "written": [2]},
        ]  # fmt: skip
        await client.aclose()


@each_case("chunked", [False, True])
@each_case("path", ["/verify", "/write", "/seed_session"])
async def test_body_beyond_the_limit_is_rejected(path, chunked):
    body = b'{"owner": "' + b"x" * 200_000 + b'"}'

    def send(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        chunks = (body[start : start + 5000] for start in range(0, len(body), 5000)) if chunked else body
        try:
            connection.request("POST", path, chunks, {"content-type": "application/json"}, encode_chunked=chunked)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    async with on_a_port(notebook(max_request_bytes=100_000)) as address:
        status, text = await asyncio.to_thread(send, urlsplit(address).port)
    assert (status, b"max_request_bytes" in text) == (413, True)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../../b", "..", ".", "", "a\\b", "a\0b", "a%2fb", "-a"]
)
def test_rollout_id_cannot_leave_the_capture_folder(tmp_path, name):
    store = CaptureStore(tmp_path / "captures")
    with pytest.raises(ValueError, match="rollout"):
        store.path_for(name)


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", "/abs"])
def test_server_name_cannot_leave_the_log_folder(tmp_path, name):
    log, report = os.pipe(), os.pipe()
    watcher = Watcher(None, tmp_path / "logs")
    watcher.add(ServerProcess(None, name=name, log_fd=log[0], report_fd=report[0]))
    os.write(log[1], b"a line\n")
    for descriptor in (log[1], report[1]):
        os.close(descriptor)
    watcher.close(100.0)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in files] == [tmp_path / "logs"]
    assert files[0].read_text() == "a line\n"


@pytest.mark.parametrize("value", ["../x", "a/b", 5, ["a"], "", "\ud800"])
def test_invalid_rollout_id_is_an_invalid_task(value, address_of):
    url = urlsplit(address_of("responses_api_agents/simple_agent"))
    row = json.loads(next(iter((Path(__file__).parents[2] / "resources_servers/mcqa/data/example.jsonl").open())))
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=100)
    body = json.dumps({**row, "_ng_rollout_id": value})
    connection.request("POST", "/run", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    connection.close()
    assert (answer.status, problem["failure_class"]) == (422, "invalid_task")


@each_case(
    ("text", "depth"),
    [("1", 0), ("[]", 1), ("[[],[[]]]", 3), ('{"a": [{"b": "]]]["}]}', 3), ('["\\"[[[", "[", [1]]', 2),
     ('["\\\\", ["\\\\\\"["]]', 2), ("[" * 500 + "]" * 500, 500), ("[" * 300, 300), ('{"a":' * 200 + "1", 200),
     ("[[%s], {}]" % ("1.5," * 9000), 2), ("[%s[]]" % ("[]," * 9000), 2), ("[%s[[]]]" % ('"[",' * 9000), 3)],
)  # fmt: skip
def test_nesting_depth_is_exact(text, depth):
    data = text.encode()
    assert is_deeper_than(data, depth) is False
    if depth:
        assert is_deeper_than(data, depth - 1) is True
