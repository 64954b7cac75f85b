"""Runs over TLS for real: on several machines, with a process killed in the middle, and behind a proxy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.cluster.hosts import PATIENCE_S, Host, connected_hosts
from tests.cluster.runs import (
    AGENT,
    BIN,
    ENVIRONMENT,
    MODEL,
    SERVER,
    TOKEN,
    Part,
    collecting,
    counts_of,
    results_of,
    strange_calls,
    until,
    write_tasks,
    written,
)

pytestmark = pytest.mark.slow

HANDSHAKE = b"\x16\x03"
ALERT = b"\x15\x03"
OUTSIDE = "outside"
"""The name of the test's own process on the hosts."""
LARGE = 2_000_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def words_for(authority: Authority, *names: str) -> list[str]:
    """Issue a certificate for a machine, and return the overrides that use it."""
    tls = authority.tls(names[0], *names)
    return [f"+tls.ca={tls.ca}", f"+tls.cert={tls.cert}", f"+tls.key={tls.key}"]


def test_machines_talk_over_tls(authority, tmp_path):
    tasks = write_tasks(tmp_path / "tasks.jsonl")
    trusting = f"+tls.ca={authority.ca}"
    with connected_hosts(4, "ngt") as [head, left, right, trainer], recorder(head) as traffic:
        url = f"https://{head.name}:11000"
        first = Part(head, "--only", f"{AGENT},{MODEL}", *words_for(authority, head.name, head.ip, OUTSIDE))
        first.wait_for(f"--only {SERVER} --join {url}")
        # The state of a rollout may be in another process, on another machine.
        for host in (left, right):
            words = words_for(authority, host.name, host.ip)
            Part(host, "--only", SERVER, "--join", url, "+replicas=2", *words).ready()
        remove_sockets(head)
        more = ("--num-repeats", "10", "--concurrency", "64", trusting)
        collection = collecting(trainer, tasks, head.ip, "all.jsonl", *more)
        until(lambda: written(trainer, "all.jsonl") > 50)
        os.kill(pid_on(left, head.ip, trusting), signal.SIGKILL)
        assert collection.wait(PATIENCE_S) == 0, (trainer.folder / "all.jsonl.log").read_text()
        assert counts_of(trainer, "all.jsonl") == (500, 500, 0, 0)
        assert all(result["reward"] == 1.0 for result in results_of(trainer, "all.jsonl"))
        assert not any(strange_calls(host) for host in (head, left, right, trainer))
        assert {each.address for each in trainer.dialled()} == {head.ip}
        assert len(trainer.dialled()) > 1
        # The run's token passes the recorder, but nobody can read it there.
        until(lambda: "4 of 4 servers answer" in status(trainer, OUTSIDE, trusting))
        shown = status(trainer, OUTSIDE, trusting)
        assert "http://" not in shown
        # Commands on a machine of the run know its settings.
        until(lambda: "4 of 4 servers answer" in status(left, head.ip))
        assert "speaks TLS. Pass --tls.ca FILE" in status(trainer, head.ip)
        assert traffic.startswith(HANDSHAKE)
        assert len(traffic) > 600
        assert TOKEN.encode() not in traffic
        assert b"HTTP" not in traffic
        answers = {
            host.name: [answer_to_plain_http(host.ip, port) for port in host.listening()] for host in (head, left)
        }
        assert all(answers.values())
        assert {answer[:2] for found in answers.values() for answer in found} <= {b"", ALERT}


def test_proxy_may_have_the_certificate(authority, tmp_path):
    """The servers listen on loopback addresses only, and a trainer elsewhere calls the proxy."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    row = {"padding": "x" * LARGE, "responses_create_params": {"input": "?"}}
    rows = [{"number": number, **row} for number in range(4)]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tls = authority.tls("proxy", "node1")
    with connected_hosts(2, "ngt") as [inside, trainer]:
        agent = f"+{AGENT}.responses_api_agents.simple_agent"
        ports = (f"{agent}.port=12001", f"{agent}.advertised_port=12002")
        # The proxy listens on the same port as the head server, but on another address.
        words = ("+default_host=127.0.0.1", "+advertised_host=node1", "+allowed_hosts=[node1]", *ports)
        Part(inside, *words).ready()
        remove_sockets(inside)
        forwards = {f"{inside.ip}:11000": "127.0.0.1:11000", f"{inside.ip}:12002": "127.0.0.1:12001"}
        config = inside.folder / "nginx.conf"
        config.write_text(NGINX % "".join(forward(tls.cert, tls.key, *each) for each in forwards.items()))
        with (inside.folder / "nginx.log").open("w") as log:
            inside.popen("nginx", "-p", inside.folder, "-c", config, stdout=log, stderr=log)
        until(lambda: {11000, 12002} <= inside.listening(), (inside.folder / "nginx.log").read_text)
        until(lambda: connects(inside.ip, 12002), (inside.folder / "nginx.log").read_text)
        trusting = f"+tls.ca={authority.ca}"
        collection = collecting(trainer, tasks, inside.name, "all.jsonl", trusting)
        assert collection.wait(PATIENCE_S) == 0, (trainer.folder / "all.jsonl.log").read_text()
        assert counts_of(trainer, "all.jsonl") == (4, 4, 0, 0)
        assert all(len(result["padding"]) == LARGE for result in results_of(trainer, "all.jsonl"))
        assert {each.port for each in trainer.dialled()} == {11000, 12002}
        refused = status(trainer, inside.ip, trusting)
        assert f"it is not valid for '{inside.ip}'" in refused


NGINX = """
daemon off;
error_log stderr;
pid nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
%s
}
"""
"""The part of the proxy's configuration that the documentation leaves out."""


def forward(cert: str | None, key: str | None, listening: str, server: str) -> str:
    """Return the proxy's block for one server, as in the documentation."""
    return f"""
server {{
  listen {listening} ssl;
  ssl_certificate {cert};
  ssl_certificate_key {key};
  client_max_body_size 0;
  location / {{
    proxy_pass http://{server};
    proxy_set_header Host $host;
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_read_timeout 1h;
    proxy_send_timeout 1h;
  }}
}}
"""


def remove_sockets(host: Host) -> None:
    """Remove the unix sockets of a host's servers, because all hosts of a test share their files."""
    folders = list(host.folder.rglob("nemo_gym_sockets_*"))
    assert folders
    for folder in folders:
        shutil.rmtree(folder)


def status(host: Host, address: str, *words: str) -> str:
    """Return what `ng_status` prints about the run with this head server."""
    command = (BIN / "ng_status", f"+head_server.host={address}", "+head_server.port=11000", *words)
    done = host.run(*command, env=ENVIRONMENT, check=False)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def pid_on(host: Host, head: str, *words: str) -> int:
    """Return a process of the environment's server on a host."""
    servers = json.loads(status(host, head, "--json", *words))
    return next(each["pids"][0] for each in servers if (each["config_path"], each["machine"]) == (SERVER, host.name))


def connects(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), PATIENCE_S):
        return True
    return False


def answer_to_plain_http(host: str, port: int) -> bytes:
    """Send a request without TLS, and return all that the server sends before it closes the connection."""
    with socket.create_connection((host, port), PATIENCE_S) as sock:
        sock.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            return b"".join(iter(lambda: sock.recv(65536), b""))
    return b""


@contextmanager
def recorder(head: Host) -> Iterator[bytearray]:
    """Forward connections to a head server from the same port of this process, and yield all the bytes of callers."""
    seen = bytearray()
    with socket.create_server((f"{head.ip.rpartition('.')[0]}.254", 11000)) as listener:
        threading.Thread(target=_forward_all, args=(listener, head.ip, seen), daemon=True).start()
        yield seen
        listener.shutdown(socket.SHUT_RDWR)


def _forward_all(listener: socket.socket, target: str, seen: bytearray) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection((target, 11000), PATIENCE_S)
        for source, sink, into in ((caller, server, seen), (server, caller, bytearray())):
            threading.Thread(target=_copy, args=(source, sink, into), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, seen: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            seen += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
