"""Ports, bound for real, and early detection of conflicts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from nemo_gym.config.models import Origin, WrittenAddress
from nemo_gym.config.ports import bind
from nemo_gym.config.run_settings import PortRange
from nemo_gym.errors import ConfigError, PortTakenError
from tests.each_case import each_case

SERVER = "{name}:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n      port: {port}\n"


def test_port_0_binds_a_free_port():
    with bind("127.0.0.1", 0, instance="weather") as server:
        address = server.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=100)
        server.listen()
        socket.create_connection(address, timeout=100).close()


def test_ports_from_a_range_are_unique():
    with bind("127.0.0.1", 0, instance="a") as free:
        port = free.getsockname()[1]
    ports = PortRange(port, port + 3)
    with bind("127.0.0.1", 0, instance="a", port_range=ports) as one:
        with bind("127.0.0.1", 0, instance="b", port_range=ports) as other:
            taken = {one.getsockname()[1], other.getsockname()[1]}
            assert len(taken) == 2
            assert taken <= set(range(ports.low, ports.high + 1))
        only = PortRange(one.getsockname()[1], one.getsockname()[1])
        with pytest.raises(PortTakenError, match=r"c: no free port on 127\.0\.0\.1 between port_range_low"):
            bind("127.0.0.1", 0, instance="c", port_range=only)


def test_port_in_use_reports_server_and_holder():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortTakenError) as refused:
            bind("127.0.0.1", port, instance="weather")
    assert str(refused.value).startswith(f"weather: port {port} on 127.0.0.1 is held by")
    if os.path.exists("/proc/net/tcp"):
        assert f"process {os.getpid()} (" in str(refused.value)


def test_invalid_address_reports_location():
    written = WrittenAddress(host="a.yaml:6: w.host", port="a.yaml:5: w.port")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"^a\.yaml:5: w\.port: port {port} on .* give weather another port"):
            bind("127.0.0.1", port, instance="weather", written=written)
    with pytest.raises(ConfigError, match=r"^a\.yaml:6: w\.host: weather cannot listen on 192\.0\.2\.1 \("):
        bind("192.0.2.1", 0, instance="weather", written=written)


def test_configuration_keeps_origins_of_addresses(project):
    run = project.load_text(
        SERVER.format(name="a", port=8001) + SERVER.format(name="b", port=8002) + "      host: 127.0.0.2\n",
        "+default_host=127.0.0.3",
        "+head_server.port=9000",
    )
    default = "command line: +default_host=127.0.0.3: default_host"
    key = "resources_servers.weather"
    assert run.written_address(run.servers["a"]) == (default, f"main.yaml:5: a.{key}.port")
    assert run.written_address(run.servers["b"]) == (f"main.yaml:11: b.{key}.host", f"main.yaml:10: b.{key}.port")
    assert run.written_address(None) == (default, "command line: +head_server.port=9000: head_server.port")
    assert project.load().written_address(None) == ("", "")


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="the system does not show which process holds a port")
def test_port_holder_is_described_without_secrets(tmp_path):
    script = tmp_path / "deep/inside/holder.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, script, "--api-key", "s3cret", "+x=1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        port = int(holder.stdout.readline())
        with pytest.raises(PortTakenError) as refused:
            bind("127.0.0.1", port, instance="weather")
        holder.stdin.close()
    name = os.path.basename(sys.executable)
    assert f"process {holder.pid} ({name} inside/holder.py --api-key ****)" in str(refused.value)


def test_port_can_be_rebound_after_its_server_ended():
    with bind("127.0.0.1", 0, instance="weather") as server:
        server.listen()
        address = server.getsockname()
        client = socket.create_connection(address, timeout=100)
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        client.close()
    bind(*address, instance="weather").close()


def test_foreign_host_is_rejected():
    with pytest.raises(ConfigError, match=r"weather: cannot listen on 192\.0\.2\.1 .* address of this machine"):
        bind("192.0.2.1", 0, instance="weather")


def test_port_conflict_reports_both_lines(project):
    message = project.refusal(PortTakenError, SERVER.format(name="a", port=8001) + SERVER.format(name="b", port=8001))
    assert message.startswith("main.yaml:10: b requests port 8001, which a already has (main.yaml:5)")


def test_same_port_on_two_hosts_is_allowed(project):
    text = SERVER.format(name="a", port=8001) + "      host: 127.0.0.1\n" + SERVER.format(name="b", port=8001)
    assert len(project.load_text(text + "      host: 127.0.0.2\n").servers) == 2
    assert "b requests port 8001" in project.refusal(PortTakenError, text + "      host: 0.0.0.0\n")


@pytest.mark.parametrize(
    ("head", "expected"), [("", "(by default;"), ("head_server: {port: 9000}\n", "(main.yaml:1)")]
)
def test_port_of_the_head_server_conflicts(project, head, expected):
    message = project.refusal(PortTakenError, head + SERVER.format(name="a", port=9000 if head else 11000))
    assert "a requests port" in message
    assert "the head server" in message
    assert expected in message


@each_case(
    ("words", "ports"),
    [
        ((), (10001, 20000)),
        (("+port_range_low=12000", "+port_range_high=13000"), (12000, 13000)),
        (("+port_range_low=12000",), (12000, 20000)),
        (("+port_range_high=13000",), (10001, 13000)),
    ],
)
def test_port_range_is_read(project, words, ports):
    assert project.load(*words).settings.port_range == ports


@each_case(
    ("words", "expected"),
    [
        (
            ("+port_range_low=30000",),
            "port_range_low: it is 30000 and port_range_high is 20000",
        ),
        (("+port_range_low=many",), "port_range_low: it must be a valid integer, but is 'many'"),
        (("+port_range_low=inf",), "port_range_low: it must be a finite number, but is inf"),
        (("+port_range_high=70000",), "port_range_high: it must be less than or equal to 65535, but is 70000"),
    ],
)
def test_invalid_port_range_reports_location(project, words, expected):
    with pytest.raises(ConfigError) as refused:
        project.load(*words)
    assert str(refused.value).startswith(f"{Origin(f'command line: {words[0]}', 0)}: ")
    assert expected in str(refused.value)
