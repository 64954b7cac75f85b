from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.server_utils import ServerClient
from resources_servers.graded_maths.app import GradedMathsResourcesServer, GradedMathsResourcesServerConfig


def _row(task: int, rollout: int, answer, right: bool, subject: str) -> dict:
    return {
        TASK_INDEX_KEY_NAME: task,
        ROLLOUT_INDEX_KEY_NAME: rollout,
        "reward": float(right),
        "symbolic_accuracy": right,
        "extracted_answer": answer,
        "subject": subject,
        "response": {"usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}},
    }


ROWS = [
    _row(0, 0, "4", True, "algebra"),
    _row(0, 1, "5", False, "algebra"),
    _row(1, 0, None, False, "geometry"),
    _row(1, 1, "7", False, "geometry"),
]


@pytest.fixture
def server() -> GradedMathsResourcesServer:
    config = GradedMathsResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    return GradedMathsResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_compute_metrics(server: GradedMathsResourcesServer) -> None:
    metrics = server.compute_metrics([ROWS[:2], ROWS[2:]])
    assert metrics["pass@1/accuracy"] == pytest.approx(25.0)
    assert metrics["pass@2/accuracy"] == pytest.approx(50.0)
    assert metrics["pass@1[avg-of-2]/accuracy"] == pytest.approx(25.0)
    assert metrics["pass@1[avg-of-2]/no_answer"] == pytest.approx(25.0)
    assert metrics["majority@2/accuracy"] == pytest.approx(25.0)
    assert metrics["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(70.710678 / 2)
    assert metrics["algebra/pass@2/accuracy"] == pytest.approx(100.0)
    assert metrics["geometry/pass@2/symbolic_accuracy"] == pytest.approx(0.0)


async def test_aggregate_metrics(server: GradedMathsResourcesServer) -> None:
    result = await server.aggregate_metrics(AggregateMetricsRequest(verify_responses=ROWS))
    assert isinstance(result, AggregateMetrics)
    assert result.agent_metrics["mean/reward"] == 0.25
    assert result.key_metrics["mean/input_tokens"] == 10
    assert result.key_metrics["pass@2/accuracy"] == pytest.approx(50.0)
    assert "pass@2/no_answer" not in result.key_metrics
    assert not [name for name in result.key_metrics if "std" in name]
    assert [group["mean/reward"] for group in result.group_level_metrics] == [0.5, 0.0]


def test_routes(server: GradedMathsResourcesServer) -> None:
    client = TestClient(server.setup_webserver())
    assert client.get("/reverify_mode").json() == "stateless"
    answer = client.post("/aggregate_metrics", json={"verify_responses": ROWS})
    assert answer.json()["key_metrics"]["pass@1[avg-of-2]/accuracy"] == pytest.approx(25.0)
