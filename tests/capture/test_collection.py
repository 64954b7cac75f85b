"""Tests of capture in a complete run with real servers."""

import re

import orjson
import pytest

from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.rollout_observability import TrajectoryRecord
from tests.rows import rows_of

pytestmark = pytest.mark.slow

ENVIRONMENT = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
CONFIG = f"+config_paths=[{ENVIRONMENT},responses_api_models/sample_model/configs/sample_model.yaml]"
OBSERVING_AGENT = """
from fastapi import Request

from nemo_gym import BaseResponsesAPIAgentConfig, BaseRunRequest, ModelServerRef, SimpleResponsesAPIAgent
from nemo_gym.rollout_observability import AgentInvocation, AgentObservationBundle, ModelCallRef


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
        answer = await (await self.server_client.post(self.config.name, path, json=asked)).json()
        if body.fails:
            raise ValueError("asked to")
        call = ModelCallRef(model_ref=self.config.model_server, response_id=answer["id"])
        invocation = AgentInvocation(invocation_id=path, model_calls=[call])
        bundle = AgentObservationBundle(source="observing", records=[invocation])
        return {"response": answer, "reward": 1.0, "ng_agent_observations": bundle.model_dump()}


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


def test_each_result_sums_its_model_calls(captured, folder):
    assert len(captured) == 10
    for row in captured:
        shown = row["ng_model_call_capture"]
        assert shown["rollout_id"] == f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        stored = CaptureStore(folder).read(shown["rollout_id"])
        assert stored[-1]["response"]["output"] == row["response"]["output"][-len(stored[-1]["response"]["output"]) :]
        assert shown["metrics"]["num_calls"] == len(stored) > 0
        assert shown["metrics"]["tokens_in"] == row["response"]["usage"]["input_tokens"]
        assert shown["metrics"]["tokens_out"] == row["response"]["usage"]["output_tokens"]
        assert set(shown) == {"rollout_id", "metrics"}


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


def test_each_trajectory_has_calls_and_turn(captured, folder):
    for row in captured:
        shown = TrajectoryRecord.model_validate(row["ng_trajectory"])
        stored = CaptureStore(folder).read(row["ng_model_call_capture"]["rollout_id"])
        assert (shown.task_id, shown.rollout_id) == (str(row["_ng_task_index"]), stored_id(row))
        assert [(each.model_call_id, each.request, each.response) for each in shown.model_calls] == [
            (call["model_call_id"], call["request"], call["response"]) for call in stored
        ]
        assert {call.response_metadata.model_ref.name for call in shown.model_calls} == {"policy_model"}
        (invocation,), (turn,) = shown.invocations, shown.turns
        assert invocation.invocation_id == turn.invocation_id == row["agent_ref"]["name"]
        named = [call.model_call_id for call in invocation.model_calls]
        assert named == [call.model_call_id for call in turn.model_calls] == [call["model_call_id"] for call in stored]
        output = row["response"]["output"]
        assert len(invocation.conversation) == len(row["responses_create_params"]["input"]) + len(output)
        assert turn.answer == [item for item in output if item["type"] == "message"]
        assert (turn.turn_no, turn.step_count) == (1, len(stored))
        assert shown.gaps == []


def stored_id(row):
    return row["ng_model_call_capture"]["rollout_id"]


def test_each_tool_call_is_timed(captured):
    for row in captured:
        shown = TrajectoryRecord.model_validate(row["ng_trajectory"])
        calls = [item for item in row["response"]["output"] if item["type"] == "function_call"]
        outputs = [item for item in row["response"]["output"] if item["type"] == "function_call_output"]
        assert [call.tool_call_id for call in shown.tool_calls] == [call["call_id"] for call in calls]
        assert [call.output for call in shown.tool_calls] == [item["output"] for item in outputs]
        assert all(call.started_at <= call.completed_at for call in shown.tool_calls)
        assert {(call.status, call.timing_source) for call in shown.tool_calls} <= {("completed", "harness")}


def calls_of(row):
    return {call["model_call_id"] for call in row["ng_trajectory"]["model_calls"]}


def test_second_run_reports_only_its_own_calls(captured, shared_workplace, folder):
    words = ("+observability_enabled=true", f"+model_call_capture_dir={folder}")
    again = collected(shared_workplace, CONFIG, "again/out.jsonl", "+num_repeats=2", *words)
    earlier = {stored_id(row): row for row in captured}
    for row in again:
        assert (
            row["ng_model_call_capture"]["metrics"]["num_calls"]
            == len(calls_of(row))
            == len(calls_of(earlier[stored_id(row)]))
        )
        assert not calls_of(row) & calls_of(earlier[stored_id(row)])


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
    (call,) = shown.model_calls
    (named,) = shown.invocations[0].model_calls
    assert (named.model_call_id, named.response_id) == (call.model_call_id, call.response["id"])
    assert [gap.code for gap in shown.gaps] == ["turns_unavailable", "conversation_unavailable"]
    (failure,) = rows_of(workplace.folder / "out_failures.jsonl")
    assert failure["ng_model_call_capture"]["metrics"]["num_calls"] == 1
    assert len(failure["ng_trajectory"]["model_calls"]) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["+observability_enabled=true"], "model_call_capture_dir is not set"),
        (["+observability_enabled=true", "+model_call_capture_dir=here"], "must be an absolute path"),
        (["+observability_enabled=perhaps"], "observability_enabled: it must be a valid boolean, but is 'perhaps'"),
    ],
)
def test_invalid_capture_settings_prevent_start(workplace, words, problem):
    finished = workplace.run("ng_run", CONFIG, "+head_server.port=0", *words)
    assert finished.code == 1
    assert problem in finished.err
    assert "command line: " in finished.err
    assert "Traceback" not in finished.err
