"""Ports: bound for real, and seen early where two servers want the same one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from nemo_gym.config import Origin, PortRange, WrittenAddress, bind
from nemo_gym.errors import ConfigError, PortTakenError

SERVER = "{name}:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n      port: {port}\n"


def test_port_0_takes_a_free_port_that_accepts_connections_once_it_listens():
    with bind("127.0.0.1", 0, instance="weather") as server:
        address = server.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        server.listen()
        socket.create_connection(address, timeout=5).close()


def test_a_port_comes_from_the_range_and_no_two_get_the_same():
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


def test_a_port_in_use_is_told_with_the_server_and_the_process_that_holds_it():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortTakenError) as refused:
            bind("127.0.0.1", port, instance="weather")
    assert str(refused.value).startswith(f"weather: port {port} on 127.0.0.1 is held by")
    if os.path.exists("/proc/net/tcp"):
        assert f"process {os.getpid()} (" in str(refused.value)


def test_a_mistake_in_an_address_is_told_with_where_it_was_written():
    written = WrittenAddress(host="a.yaml:6: w.host", port="a.yaml:5: w.port")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"^a\.yaml:5: w\.port: port {port} on .* give weather another port"):
            bind("127.0.0.1", port, instance="weather", written=written)
    with pytest.raises(ConfigError, match=r"^a\.yaml:6: w\.host: weather cannot listen on 192\.0\.2\.1 \("):
        bind("192.0.2.1", 0, instance="weather", written=written)


def test_the_configuration_knows_where_addresses_were_written(project):
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


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="the system does not tell who holds a port")
def test_the_holder_of_a_port_is_told_by_its_script_and_first_arguments_without_secrets(tmp_path):
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


def test_a_port_can_be_bound_again_at_once_after_its_server_ended():
    with bind("127.0.0.1", 0, instance="weather") as server:
        server.listen()
        address = server.getsockname()
        client = socket.create_connection(address, timeout=5)
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        client.close()
    bind(*address, instance="weather").close()


def test_a_host_that_is_not_of_this_machine_is_told():
    with pytest.raises(ConfigError, match=r"weather: cannot listen on 192\.0\.2\.1 .* address of this machine"):
        bind("192.0.2.1", 0, instance="weather")


def test_two_servers_with_the_same_port_are_told_with_both_lines(project):
    message = project.refusal(PortTakenError, SERVER.format(name="a", port=8001) + SERVER.format(name="b", port=8001))
    assert message.startswith("main.yaml:10: b asks for port 8001, which a already has (main.yaml:5)")


def test_a_port_may_be_shared_by_two_hosts_unless_one_is_all_of_them(project):
    text = SERVER.format(name="a", port=8001) + "      host: 127.0.0.1\n" + SERVER.format(name="b", port=8001)
    assert len(project.load_text(text + "      host: 127.0.0.2\n").servers) == 2
    assert "b asks for port 8001" in project.refusal(PortTakenError, text + "      host: 0.0.0.0\n")


@pytest.mark.parametrize(("head", "told"), [("", "(by default;"), ("head_server: {port: 9000}\n", "(main.yaml:1)")])
def test_the_port_of_the_head_server_is_taken(project, head, told):
    message = project.refusal(PortTakenError, head + SERVER.format(name="a", port=9000 if head else 11000))
    assert "a asks for port" in message
    assert "the head server" in message
    assert told in message


@pytest.mark.parametrize(
    ("words", "ports"),
    [
        ((), (10001, 20000)),
        (("+port_range_low=12000", "+port_range_high=13000"), (12000, 13000)),
        (("+port_range_low=12000",), (12000, 20000)),
        (("+port_range_high=13000",), (10001, 13000)),
    ],
)
def test_the_range_is_read(project, words, ports):
    assert project.load(*words).port_range == ports


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("+port_range_low=30000",), "port_range_low is 30000 and port_range_high is 20000"),
        (("+port_range_low=many",), "port_range_low is a port number, and here it is 'many'"),
        (("+port_range_high=70000",), "port_range_high is 70000; ports go from 1 to 65535"),
    ],
)
def test_a_range_that_is_none_is_told_with_its_place(project, words, told):
    with pytest.raises(ConfigError) as refused:
        project.load(*words)
    assert str(refused.value).startswith(f"{Origin(f'command line: {words[0]}', 0)}: ")
    assert told in str(refused.value)
