"""`ng_run` starts the servers of a configuration, in any search folder."""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.slow

TALKING_SERVER = """
import os, time
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer

print("a line while it is imported", flush=True)


class Talking(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/pid")
        def pid() -> int:
            time.sleep(0.1)
            return os.getpid()

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""
BOUNDLESS_SERVER = """
from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class BoundlessConfig(BaseResourcesServerConfig):
    limit: float


class Boundless(SimpleResourcesServer):
    config: BoundlessConfig

    def model_post_init(self, context):
        assert self.config.limit == float("inf")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


@pytest.fixture(scope="module", params=["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def running(request, shared_workplace):
    """A run of two servers, once forked and once spawned, as `(command, workplace)`."""
    first = shared_workplace.environment("talking", TALKING_SERVER)
    second = shared_workplace.environment("plain")
    command = shared_workplace.start_servers(
        first, second, f"+process_start_method={request.param}", f"+nemo_gym_log_dir=logs_{request.param}"
    )
    yield command, shared_workplace
    assert command.end().code == 0


def test_start_prints_the_table_of_servers(running, get_json):
    command, workplace = running
    printed = command.out
    assert command.servers.keys() == {"talking", "plain"}
    assert "2 / 2 servers ready" in printed
    for name, server in command.servers.items():
        row = next(line for line in printed.splitlines() if line.startswith(f"{name} "))
        assert row.split() == [name, "resources_servers", name, server["url"], str(server["pid"])]
        assert server["dir_path"] == str(workplace.folder / "resources_servers" / name)
        assert get_json(server["url"]) == {"status": "ok"}


def test_log_lines_have_the_servers_name(running):
    running[0].wait_for("(talking) a line while it is imported\n")


def test_logs_are_also_written_to_a_folder(running, request):
    command, workplace = running
    # Each line is written to the file first.
    command.wait_for("(talking) a line while it is imported\n")
    folder = workplace.folder / f"logs_{request.node.callspec.params['running']}"
    logs = {f"{name}.log" for name in ("talking", "plain")}
    assert {path.name for path in folder.iterdir()} == {"head_server.log", *logs}
    assert (folder / "talking.log").read_text() == "a line while it is imported\n"


def test_head_server_lists_the_ready_instances(running, get_json):
    command, _ = running
    head = command.head
    assert get_json(f"{head}/readyz") == {"status": "ok", "missing": {}}
    instances = get_json(f"{head}/server_instances")
    assert {each["config_path"]: each["status"] for each in instances} == {"talking": "success", "plain": "success"}


def test_each_server_works_in_its_folder(running, get_json):
    instances = get_json(f"{running[0].head}/server_instances")
    assert all(os.readlink(f"/proc/{each['pid']}/cwd") == each["dir_path"] for each in instances)


def test_environments_are_found_in_extra_folders(workplace):
    workplace.environment("plain")
    elsewhere = workplace.folder / "elsewhere"
    elsewhere.mkdir()
    (workplace.folder / "resources_servers").rename(elsewhere / "resources_servers")
    config = "+config_paths=[resources_servers/plain/configs/plain.yaml]"
    assert "configs/plain.yaml does not exist" in workplace.run("ng_validate", config).err
    assert workplace.run("ng_validate", config, NEMO_GYM_EXTRA_ROOTS=str(elsewhere)).out == "✓ 1 server: plain\n"
    assert workplace.run("ng_validate", config, "--search-dir", str(elsewhere)).code == 0
    finished = workplace.run("ng_validate", config, NEMO_GYM_EXTRA_ROOTS=f"{elsewhere}{os.pathsep}nowhere")
    problem = "there is no folder 'nowhere', so it is not searched. Correct the path."
    assert finished == (0, "✓ 1 server: plain\n", f"warning: NEMO_GYM_EXTRA_ROOTS: {problem}\n")


def test_random_policy_without_a_model_is_noted(workplace):
    sample = "responses_api_models/sample_model/configs/sample_model.yaml"
    workplace.write("default.yaml", f"config_paths: [{sample}]\n")
    agent = "{entrypoint: app.py, model_server: {type: responses_api_models, name: policy_model}}"
    workplace.write("agent.yaml", f"my_agent: {{responses_api_agents: {{aviary_agent: {agent}}}}}\n")
    words = ("ng_run", "+config_paths=[agent.yaml,default.yaml]", "+dry_run=true", "+head_server.port=0")
    noted = workplace.run(*words)
    assert noted.err.startswith("note: no model given: my_agent uses the random policy of ")
    assert noted.err.splitlines()[0].endswith("Add a model, for example with --model-type.")
    assert workplace.run(*words, "--model-type", "sample_model").err.count("no model given") == 0


def test_two_workers_share_one_address(workplace, get_json):
    command = workplace.start_servers(workplace.environment("talking", TALKING_SERVER, "num_workers: 2"))
    url = command.servers["talking"]["url"]
    with ThreadPoolExecutor(8) as pool:
        deadline = time.monotonic() + PATIENCE_S
        pids = set()
        while len(pids) < 2 and time.monotonic() < deadline:
            pids |= set(pool.map(get_json, [f"{url}/pid"] * 8))
    assert len(pids) == 2


def test_dry_run_builds_every_server_and_ends(workplace):
    config = workplace.environment("talking", TALKING_SERVER)
    finished = workplace.run("ng_run", config, "+dry_run=true")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.splitlines() == ["(talking) a line while it is imported", "1 server can be started"]


def test_server_gets_its_configured_port(workplace, get_json):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    workplace.start_servers(workplace.environment("plain", settings=f"port: {port}"))
    assert get_json(f"http://127.0.0.1:{port}/") == {"status": "ok"}


def test_taken_port_reports_its_holder(workplace):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        config = workplace.environment("plain", settings=f"port: {port}")
        finished = workplace.run("ng_run", config, "+head_server.port=0")
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: resources_servers/plain/configs/plain.yaml:5: plain.resources_servers.plain.port: "
        f"port {port} on 127.0.0.1 is held by process {os.getpid()} ("
    )
    assert "to use a free one" in finished.err
    assert "Traceback" not in finished.err


def test_configured_head_port_is_not_replaced(workplace):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        finished = workplace.run("ng_run", workplace.environment(), f"+head_server.port={port}")
    assert finished.code == 1
    assert finished.err.startswith(
        f"Error: command line: +head_server.port={port}: head_server.port: port {port} on 127.0.0.1 is held by process"
    )


def test_invalid_host_reports_its_location(workplace):
    finished = workplace.run("ng_run", workplace.environment(), "+default_host=no.such.host.invalid")
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: command line: +default_host=no.such.host.invalid: default_host: plain cannot listen on "
        "no.such.host.invalid ("
    )


def test_head_server_reports_another_port_than_11000(workplace):
    config = workplace.environment()
    command = workplace.start("ng_run", config)
    command.wait_for("head server: ")
    first = _head_port(command)
    other = workplace.start("ng_run", config)
    other.wait_for("head server: ")
    second = _head_port(other)
    assert second != first
    message = f"port 11000 is taken, perhaps by another run. The head server listens on {first}."
    # Another program may use the port at first.
    assert first == 11000 or message in command.err
    assert first != 11000 or "is taken" not in other.err
    assert command.end(signal.SIGTERM).code == other.end(signal.SIGTERM).code == 0


def _head_port(command) -> int:
    return int(command.head.rpartition(":")[2])


def test_infinity_reaches_the_server_unchanged(workplace):
    finished = workplace.run("ng_validate", workplace.environment("boundless", BOUNDLESS_SERVER, "limit: .inf"))
    assert (finished.code, finished.err) == (0, "")
