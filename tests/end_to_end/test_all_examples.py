"""Every shipped environment in one run with one model: all rollouts end."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from nemo_gym.config.loading import load
from nemo_gym.rollout_observability import AgentObservationBundle, TrajectoryRecord
from tests.rows import rows_of

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "configs" / "all_examples.yaml"
SAMPLE_MODEL = REPOSITORY / "responses_api_models" / "sample_model" / "configs" / "sample_model.yaml"
FOLDERS = {path.parent.name for path in (REPOSITORY / "resources_servers").glob("*/app.py")}
EXAMPLES, REPEATS = 5, 2
UNOBSERVED = ("turns_unavailable", "conversation_unavailable")
"""The gaps of agents that do not observe their work."""


@pytest.fixture(scope="module")
def agents():
    """The agents with examples, mapped to the folder of their environment."""
    run = load([CONFIG, SAMPLE_MODEL], skip_dotenv=True, require_servers=True)
    folders = {server.name: server.folder.name for server in run.servers_of("resources_servers")}
    return {
        agent.name: folders[agent.settings["resources_server"]["name"]]
        for agent in run.servers_of("responses_api_agents")
        if any(dataset.type == "example" for dataset in agent.datasets)
    }


class Collected(NamedTuple):
    """The output of a run."""

    folder: Path
    printed: str

    @property
    def scored(self):
        return rows_of(self.folder / "all.jsonl")


def collected(workplace, output, *words):
    """Run all examples with the embedded policy."""
    command = workplace.run(
        "ng_e2e_collect_rollouts",
        f"+config_paths=[{CONFIG}]",
        "--model-type",
        "sample_model",
        "+split=example",
        f"+num_repeats={REPEATS}",
        f"+output_jsonl_fpath={output}",
        "+head_server.port=0",
        *words,
        timeout_s=300,
    )
    assert command.code == 0, command.err
    return command


@pytest.fixture(scope="module")
def finished(shared_workplace):
    """All examples, twice."""
    return Collected(shared_workplace.folder, collected(shared_workplace, "all.jsonl").out)


def test_every_environment_is_included(agents):
    assert set(agents.values()) == FOLDERS


def test_sql_has_single_and_multi_step_agents(agents):
    assert {agent for agent, folder in agents.items() if folder == "text_to_sql"} == {
        "text_to_sql_simple_agent",
        "text_to_sql_multi_step_simple_agent",
    }


def test_planned_rollouts_are_all_scored(finished, agents):
    planned = len(agents) * EXAMPLES * REPEATS
    failures = finished.folder / "all_failures.jsonl"
    assert [row["_ng_failure_class"] for row in (rows_of(failures) if failures.exists() else [])] == []
    assert f"{planned} planned = {planned} scored + 0 failed" in finished.printed


def test_every_agent_ran_all_of_its_rows(finished, agents):
    assert Counter(row["agent_ref"]["name"] for row in finished.scored) == dict.fromkeys(agents, EXAMPLES * REPEATS)
    metrics = orjson.loads((finished.folder / "all_aggregate_metrics.json").read_bytes())
    assert {each["agent_ref"]["name"] for each in metrics} == set(agents)


def test_no_server_logged_a_failure(finished, shared_workplace, agents):
    logs = {path.stem: path.read_text() for path in (finished.folder / "all_run/logs").glob("*.log")}
    assert logs.keys() > set(agents) | {"policy_model", "head_server"}
    # Any failure in a server's handler is logged by a line like these, with its rollout.
    complaint = re.compile(r"WARNING nemo_gym\.web\.failures|ERROR|Traceback")
    assert [line for log in logs.values() for line in log.splitlines() if complaint.match(line)] == []
    assert shared_workplace.left_over() == []


@pytest.mark.slow
def test_observed_examples_are_all_scored(workplace, agents):
    words = ("+observability_enabled=true", f"+model_call_capture_dir={workplace.folder / 'calls'}")
    command = collected(workplace, "observed.jsonl", *words)
    planned = len(agents) * EXAMPLES * REPEATS
    assert f"{planned} planned = {planned} scored + 0 failed" in command.out
    for row in rows_of(workplace.folder / "observed.jsonl"):
        trajectory = TrajectoryRecord.model_validate(row["ng_trajectory"])
        assert trajectory.model_calls
        assert {gap.code for gap in trajectory.gaps} <= {"model_call_ownership_unavailable", *UNOBSERVED}
        if not row["agent_ref"]["name"].endswith("simple_agent"):
            continue
        AgentObservationBundle.model_validate(row["ng_agent_observations"])
        (invocation,) = trajectory.invocations
        assert invocation.conversation, row["agent_ref"]
        assert trajectory.turns, row["agent_ref"]
        owned = {call.model_call_id for call in invocation.model_calls}
        others = [call for call in trajectory.model_calls if call.model_call_id not in owned]
        # Calls of a judge, which the agent does not make.
        assert [gap.code for gap in trajectory.gaps] == ["model_call_ownership_unavailable"] * len(others)
