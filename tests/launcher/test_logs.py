"""A server's log is read to its end, even if its lines cannot be passed on."""

from __future__ import annotations

import os

import pytest

from nemo_gym.config.loading import load
from nemo_gym.launcher.local import launch

LONG_LINE = 200_000
"""More than a pipe holds."""
SHOUTING_SERVER = f"""
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Shouting(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.get("/shout")
        async def shout() -> int:
            print("x" * {LONG_LINE}, flush=True)
            return 1

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


@pytest.fixture
def shouting_run(workplace, monkeypatch):
    """The configuration of a server that logs more than a pipe holds."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", workplace.env["XDG_RUNTIME_DIR"])
    monkeypatch.chdir(workplace.folder)
    workplace.environment("shouting", SHOUTING_SERVER)
    return load(["resources_servers/shouting/configs/shouting.yaml"], ["+head_server.port=0"])


def shout_twice(servers, get_json):
    return [get_json(f"{servers.run.servers['shouting'].url}/shout", 100.0) for _ in range(2)]


def test_servers_survive_a_failing_log_receiver(shouting_run, get_json, caplog):
    received = []

    def fail(server: str, line: str) -> None:
        received.append(server)
        raise RuntimeError("no room")

    with launch(shouting_run, on_line=fail) as servers:
        assert shout_twice(servers, get_json) == [1, 1]
    assert received == ["shouting"]
    assert caplog.text.count("so it receives no more log lines") == 1


def test_servers_survive_a_full_log_disk(shouting_run, get_json, caplog, tmp_path, full_disk):
    lengths = []
    (full_disk / "shouting.log").touch()
    (tmp_path / "shouting.log").symlink_to(full_disk / "shouting.log")
    with launch(shouting_run, log_dir=tmp_path, on_line=lambda _, line: lengths.append(len(line))) as servers:
        assert shout_twice(servers, get_json) == [1, 1]
    assert lengths == [LONG_LINE, LONG_LINE]
    assert caplog.text.count("shouting.log can no longer be written to") == 1


def test_run_closes_all_files(shouting_run):
    open_before = len(os.listdir("/proc/self/fd"))
    with launch(shouting_run):
        pass
    assert len(os.listdir("/proc/self/fd")) == open_before
