from unittest.mock import MagicMock

from nemo_gym.config_types import AggregateMetricsRequest, ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from responses_api_agents.streak_agent.app import StreakAgent, StreakAgentConfig


def agent() -> StreakAgent:
    config = StreakAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        resources_server=ResourcesServerRef(type="resources_servers", name=""),
        model_server=ModelServerRef(type="responses_api_models", name=""),
    )
    return StreakAgent(config=config, server_client=MagicMock(spec=ServerClient))


def test_compute_metrics() -> None:
    tasks = [[{"reward": 1.0}, {"reward": 1.0}], [{"reward": 0.0}, {"reward": 1.0}]]
    assert agent().compute_metrics(tasks) == {"tasks_won": 1}


async def test_aggregate_metrics() -> None:
    rows = [{"_ng_task_index": index, "_ng_rollout_index": 0, "reward": float(index)} for index in range(2)]
    metrics = await agent().aggregate_metrics(AggregateMetricsRequest(verify_responses=rows))
    assert metrics.key_metrics == {"mean/reward": 0.5, "tasks_won": 1}
