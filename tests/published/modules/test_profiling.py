"""`nemo_gym.profiling`, and server profiles enabled by `profiling_enabled`."""

from __future__ import annotations

import pstats
from pathlib import Path
from unittest.mock import MagicMock
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.profiling import Profiler
from nemo_gym.server_utils import ProfilingMiddlewareConfig, ServerClient
from nemo_gym.testing import reply

pytestmark = pytest.mark.slow

ROW = {"responses_create_params": {"input": []}, "response": reply("x").model_dump(mode="json")}


def slow_to_grade(number: int) -> int:
    return sum(range(number))


def calls_of(profile: Path, function: str) -> int:
    """Return the number of calls of a function in a profile."""
    return sum(found[1] for (_, _, name), found in pstats.Stats(str(profile)).stats.items() if name == function)


def test_profiler_measures_between_start_and_stop(tmp_path):
    profiler = Profiler(name="rollouts", base_profile_dir=tmp_path / "profiles")
    slow_to_grade(10)
    profiler.start()
    slow_to_grade(10)
    slow_to_grade(10)
    profiler.stop()
    slow_to_grade(10)
    assert calls_of(tmp_path / "profiles" / "rollouts.prof", "slow_to_grade") == 2
    assert "slow_to_grade" in (tmp_path / "profiles" / "rollouts.txt").read_text()


def test_profile_can_be_written_while_running(tmp_path):
    with Profiler("rollouts", str(tmp_path)) as profiler:
        slow_to_grade(10)
        assert calls_of(profiler.dump(), "slow_to_grade") == 1
        slow_to_grade(10)
    assert calls_of(tmp_path / "rollouts.prof", "slow_to_grade") == 2


def test_profile_can_be_limited_to_some_functions(tmp_path):
    with Profiler("rollouts", tmp_path, required_str="slow_to"):
        slow_to_grade(10)
        Path("x").with_suffix(".y")
    table = (tmp_path / "rollouts.txt").read_text()
    assert "slow_to_grade" in table
    assert "with_suffix" not in table


class GradingServer(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(slow_to_grade(2)))


@pytest.fixture
def server() -> GradingServer:
    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="grader")
    return GradingServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_profiled_server_writes_its_profile(server, tmp_path):
    app = server.setup_webserver()
    server.setup_profiling(app, ProfilingMiddlewareConfig(profiling_enabled=True, profiling_results_dirpath=tmp_path))
    with TestClient(app) as client:
        assert client.post("/verify", json=ROW).json()["reward"] == 1.0
        answer = client.get("/stats")
        assert (answer.status_code, answer.content) == (200, b"")
        assert calls_of(tmp_path / "grader.prof", "slow_to_grade") == 1
        client.post("/verify", json=ROW)
    assert calls_of(tmp_path / "grader.prof", "slow_to_grade") == 2


def test_unprofiled_server_has_no_profile_route(server):
    app = server.setup_webserver()
    server.setup_profiling(app, ProfilingMiddlewareConfig())
    assert TestClient(app).get("/stats").status_code == 404


def test_configuration_can_enable_profiling_of_a_process(workplace, tmp_path):
    words = workplace.environment(), "+profiling_enabled=true", f"+profiling_results_dirpath={tmp_path / 'profiles'}"
    command = workplace.start_servers(*words)
    with urlopen(f"{command.servers['plain']['url']}/stats") as answer:
        assert (answer.status, answer.read()) == (200, b"")
    (path,) = (tmp_path / "profiles").glob("*.prof")
    assert path.name == "plain.prof" if len(command.servers["plain"]["pids"]) == 1 else path.name.startswith("plain_")
    assert pstats.Stats(str(path)).total_calls > 0
    command.end()
