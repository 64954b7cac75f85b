"""Tests of capture in a complete run with real servers."""

import re

import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.rollout_observability import TrajectoryRecord
from tests.rows import rows_of

ENVIRONMENT = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
CONFIG = f"+config_paths=[{ENVIRONMENT},responses_api_models/sample_model/configs/sample_model.yaml]"
OBSERVING_AGENT = """
from fastapi import Request

from nemo_gym import BaseResponsesAPIAgentConfig, BaseRunRequest, ModelServerRef, SimpleResponsesAPIAgent
from nemo_gym.rollout_observability import AgentInvocation, AgentObservationBundle


class RunRequest(BaseRunRequest, extra="allow"):
    pass


class ObservingAgent(SimpleResponsesAPIAgent):
    config: "Config"

    async def responses(self, request: Request, body: dict) -> dict:
        path = self.url_path_for_request("/v1/responses", request)
        answer = await self.server_client.post(self.config.model_server.name, path, json=body)
        return await answer.json()

    async def run(self, body: RunRequest) -> dict:
        asked = body.responses_create_params.model_dump(exclude_unset=True)
        path = self.url_path_for_run("/v1/responses", body)
        answer = await self.server_client.post(self.config.name, path, json=asked)
        if body.fails:
            raise ValueError("asked to")
        bundle = AgentObservationBundle(source="observing", records=[AgentInvocation(invocation_id=path)])
        return {"response": await answer.json(), "reward": 1.0, "ng_agent_observations": bundle.model_dump()}


class Config(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef


ObservingAgent.model_rebuild()

if __name__ == "__main__":
    ObservingAgent.run_webserver()
"""
OBSERVING_YAML = """
observing:
  responses_api_agents:
    observing:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""


def collected(workplace, config, output, *words):
    finished = workplace.run(
        "ng_e2e_collect_rollouts",
        config,
        "+split=example",
        f"+output_jsonl_fpath={output}",
        "+head_server.port=0",
        *words,
    )
    assert finished.code == 0, finished.err
    return rows_of(workplace.folder / output)


@pytest.fixture(scope="module")
def folder(shared_workplace):
    return shared_workplace.folder / "capture"


@pytest.fixture(scope="module")
def captured(shared_workplace, folder):
    """The results of ten rollouts with capture enabled."""
    words = ("+observability_enabled=true", f"+model_call_capture_dir={folder}")
    return collected(shared_workplace, CONFIG, "on/out.jsonl", "+num_repeats=2", *words)


def test_each_result_lists_its_model_calls(captured, folder):
    assert len(captured) == 10
    for row in captured:
        shown = row["ng_model_call_capture"]
        assert shown["rollout_id"] == f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        stored = CaptureStore(folder).read(shown["rollout_id"])
        assert [call["model_call_id"] for call in shown["calls"]] == [call["model_call_id"] for call in stored]
        assert stored[-1]["response"]["output"] == row["response"]["output"][-len(stored[-1]["response"]["output"]) :]
        assert {call["model_ref"]["name"] for call in shown["calls"]} == {"policy_model"}
        assert shown["metrics"]["num_calls"] == len(stored) > 0
        assert shown["metrics"]["tokens_in"] == row["response"]["usage"]["input_tokens"]
        assert shown["metrics"]["tokens_out"] == row["response"]["usage"]["output_tokens"]
        assert "gaps" not in shown


def test_run_ends_if_too_many_rollouts_lack_tokens(shared_workplace):
    folder = shared_workplace.folder / "tokens"
    limits = "max_mask_fraction: 0.5, mask_fraction_min_samples: 10"
    finished = shared_workplace.run(
        "ng_e2e_collect_rollouts", CONFIG, "+split=example", "+output_jsonl_fpath=masked.jsonl", "+num_repeats=8",
        "+head_server.port=0", "+num_samples_in_parallel=2",
        f"+token_id_capture={{enabled: true, all_agents: true, dir: {folder}, {limits}}}",
    )  # fmt: skip
    assert finished.code == 1
    kept = rows_of(shared_workplace.folder / "masked.jsonl")
    assert all(row["mask_sample"] is True for row in kept)
    assert f"stopped: 40 planned = {len(kept)} scored + 0 failed" in finished.err
    # The other rollout under way may end before the next one begins.
    assert re.search(r"1[01] of 1[01] rollouts \(100%\) lack tokens and are masked, but only 50% may", finished.err)
    assert "serve the model with return_token_id_information: true" in finished.err
    assert "Traceback" not in finished.err


def test_each_result_has_its_trajectory(captured):
    for row in captured:
        shown = TrajectoryRecord.model_validate(row["ng_trajectory"])
        assert shown.rollout_id == row["ng_model_call_capture"]["rollout_id"]
        assert len(shown.model_calls) == row["ng_model_call_capture"]["metrics"]["num_calls"]
        calls = [item for item in row["response"]["output"] if item["type"] == "function_call"]
        assert [call.tool_call_id for call in shown.tool_calls] == [call["call_id"] for call in calls]
        assert all(call.output and call.started_at <= call.completed_at for call in shown.tool_calls)


def test_second_run_reports_only_its_own_calls(captured, shared_workplace, folder):
    words = ("+observability_enabled=true", f"+model_call_capture_dir={folder}")
    again = collected(shared_workplace, CONFIG, "again/out.jsonl", "+num_repeats=2", *words)
    calls_of = {row["ng_model_call_capture"]["rollout_id"]: row["ng_model_call_capture"] for row in captured}
    for row in again:
        shown = row["ng_model_call_capture"]
        earlier = calls_of[shown["rollout_id"]]
        assert shown["metrics"]["num_calls"] == earlier["metrics"]["num_calls"]
        assert not {call["model_call_id"] for call in shown["calls"]} & {
            call["model_call_id"] for call in earlier["calls"]
        }


def test_run_without_capture_has_equal_results(captured, shared_workplace):
    plain = collected(shared_workplace, CONFIG, "off/out.jsonl", "+num_repeats=2")
    added = {"ng_model_call_capture", "ng_trajectory", "ng_agent_observations", "_ng_seconds"}

    def in_order(rows):
        kept = [{key: value for key, value in row.items() if key not in added} for row in rows]
        return sorted(kept, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))

    assert in_order(plain) == in_order(captured)
    assert not list((shared_workplace.folder / "off").rglob("*.capture.*"))


def test_agent_observations_are_joined_with_calls(workplace):
    workplace.write("responses_api_agents/observing/app.py", OBSERVING_AGENT)
    workplace.write("responses_api_agents/observing/configs/observing.yaml", OBSERVING_YAML)
    rows = [{"responses_create_params": {"input": "hi"}, "fails": fails} for fails in (False, True)]
    workplace.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    config = "responses_api_agents/observing/configs/observing.yaml"
    (row,) = collected(
        workplace,
        f"+config_paths=[{config},responses_api_models/sample_model/configs/sample_model.yaml]",
        "out.jsonl",
        "+observability_enabled=true",
        f"+model_call_capture_dir={workplace.folder / 'capture'}",
        "+disable_aggregation=true",
    )
    shown = TrajectoryRecord.model_validate(row["ng_trajectory"])
    assert row["ng_agent_observations"]["source"] == "observing"
    assert [each.invocation_id for each in shown.invocations] == ["/ng-rollout/0-0/v1/responses"]
    assert [call.invocation_id for call in shown.model_calls] == ["/ng-rollout/0-0/v1/responses"]
    (failure,) = rows_of(workplace.folder / "out_failures.jsonl")
    assert failure["ng_model_call_capture"]["metrics"]["num_calls"] == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["+observability_enabled=true"], "model_call_capture_dir is not set"),
        (["+observability_enabled=true", "+model_call_capture_dir=here"], "must be an absolute path"),
        (["+observability_enabled=perhaps"], "observability_enabled must be true or false, but is 'perhaps'"),
    ],
)
def test_invalid_capture_settings_prevent_start(workplace, words, problem):
    finished = workplace.run("ng_run", CONFIG, "+head_server.port=0", *words)
    assert finished.code == 1
    assert problem in finished.err
    assert "command line: " in finished.err
    assert "Traceback" not in finished.err
