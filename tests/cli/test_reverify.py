"""Tests of `ng eval reverify`, which grades stored rollouts from their rows and responses."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.testing import reply
from tests.rows import rows_of

pytestmark = pytest.mark.slow

AGENT = {"type": "responses_api_agents", "name": "answers_agent"}
SERVER = """
from pathlib import Path
from typing import ClassVar

from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, JudgeFailed, ReverifyMode, SimpleResourcesServer


class Config(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.MODE


class VerifyRequest(BaseVerifyRequest):
    expected: str


class Answers(SimpleResourcesServer):
    config: Config

    async def verify(self, body: VerifyRequest) -> float:
        if body.response.last_text == "unclear" and not Path(__file__).with_name("judge").exists():
            raise JudgeFailed("no judge is here")
        return 2.0 if body.response.last_text == "unclear" else float(body.response.last_text == body.expected)

    def compute_metrics(self, tasks):
        return {"tasks_seen": len(tasks)}
"""
BLOCKS = """
answers:
  resources_servers:
    answers:
      entrypoint: app.py
answers_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: answers}
      model_server: {type: responses_api_models, name: policy_model}
"""
CONFIG = "+config_paths=[answers.yaml]"
WORDS = (
    "+materialized_inputs_jsonl_fpath=in.jsonl",
    "+rollouts_jsonl_fpath=run.jsonl",
    "+output_jsonl_fpath=new.jsonl",
)


def asked(task, repeat=0):
    return {
        "responses_create_params": {"input": f"question {task}"},
        "expected": "right",
        "agent_ref": AGENT,
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def done(text, task, repeat=0, **fields):
    return {**asked(task, repeat), "response": reply(text).model_dump(mode="json"), "reward": 0.25, **fields}


def judge_failed(text, task, repeat=0):
    return done(text, task, repeat, _ng_failure_class="judge_failed", _ng_failure_judge_error="no judge is here")


def write(workplace, path, rows):
    workplace.write(path, "".join(orjson.dumps(row).decode() + "\n" for row in rows))


def read(workplace, path):
    rows = rows_of(workplace.folder / path)
    return {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in rows}


@pytest.fixture
def stored(workplace):
    """Three graded rollouts, and two that failed because their judge failed, one of them twice."""
    lay_out(workplace, mode="STATELESS")
    return workplace


def lay_out(workplace, mode):
    workplace.write("resources_servers/answers/app.py", SERVER.replace(".MODE\n", f".{mode}\n"))
    workplace.write("answers.yaml", BLOCKS)
    write(workplace, "in.jsonl", [asked(task) for task in range(6)])
    write(workplace, "run.jsonl", [done("right", 0), done("wrong", 1), done("right", 2)])
    failures = [judge_failed("wrong", 3), judge_failed("unclear", 3), judge_failed("right", 4)]
    # The first of these was scored by a later attempt; the second has no response.
    failures += [judge_failed("wrong", 0), {**asked(5), "_ng_failure_class": "timeout"}]
    write(workplace, "run_failures.jsonl", failures)


def graded(workplace, *words, code=0):
    finished = workplace.run("ng", "eval", "reverify", *WORDS, "+head_server.port=0", *words)
    assert finished.code == code, finished.err
    return finished


def test_stored_rollouts_are_graded_without_agent_or_model(stored):
    finished = graded(stored, CONFIG)
    rollouts = read(stored, "new.jsonl")
    assert {key: row["reward"] for key, row in rollouts.items()} == {(0, 0): 1.0, (1, 0): 0.0, (2, 0): 1.0}
    before = read(stored, "run.jsonl")
    assert rollouts == {key: {**row, "reward": rollouts[key]["reward"]} for key, row in before.items()}
    assert "3 planned = 3 scored + 0 failed + 0 unresolved" in finished.out
    (metrics,) = orjson.loads((stored.folder / "new_aggregate_metrics.json").read_bytes())
    assert metrics["agent_ref"] == {"name": "answers_agent"}
    assert metrics["agent_metrics"]["tasks_seen"] == 3
    assert (stored.folder / "new_failures.jsonl").read_bytes() == b""


def test_run_record_has_subject_of_stored_rollouts(stored):
    record = {
        "started_at": "2026-01-01T00:00:00+00:00", "command": ["ng"], "pid": 1, "host": "h", "versions": {},
        "outcomes": {"planned": 3, "scored": 3, "kept": 0, "failed": {}, "unresolved": 0, "repeated_attempts": 0},
        "models": {"policy_model": {"openai_model": "m"}}, "policy_model_name": "m", "config_hash": "abc",
        "input": {"path": "rows.jsonl", "sha256": "0f", "bytes": 1}, "settings": {"num_repeats": 2},
        "state": "finished",
    }  # fmt: skip
    stored.write("run_run.json", orjson.dumps(record).decode())
    graded(stored, CONFIG, "--limit", "1")
    graded(stored, CONFIG, "--resume")
    found = orjson.loads((stored.folder / "new_run.json").read_bytes())
    same = ("models", "policy_model_name", "settings")
    assert {key: found[key] for key in same} == {key: record[key] for key in same}
    assert (found["input"]["sha256"], found["regraded"]["path"]) == ("0f", "run.jsonl")
    assert (found["state"], found["outcomes"]["scored"], found["outcomes"]["kept"]) == ("finished", 3, 1)
    assert [session["outcomes"]["scored"] for session in found["earlier_sessions"]] == [1]
    assert "reverify" in found["command"]
    compared = stored.run("ng", "eval", "compare", "run.jsonl", "new.jsonl")
    assert "is missing, so the settings are not compared" not in compared.out + compared.err
    assert "only B was graded again, so the servers' settings are not compared" in compared.out + compared.err


def test_record_of_collection_survives_added_rollouts(stored):
    stored.write("run_run.json", "the record")
    graded(stored, CONFIG, "+output_jsonl_fpath=run.jsonl", "--judge-failed-only", "--append")
    assert (stored.folder / "run_run.json").read_text() == "the record"


def test_judge_failures_are_graded_and_others_kept(stored):
    finished = graded(stored, CONFIG, "--judge-failed-only")
    rewards = {key: row["reward"] for key, row in read(stored, "new.jsonl").items()}
    assert rewards == {(0, 0): 0.25, (1, 0): 0.25, (2, 0): 0.25, (4, 0): 1.0}
    failure = read(stored, "new_failures.jsonl")[3, 0]
    assert (failure["_ng_failure_class"], failure["response"]["output"][0]["content"][0]["text"]) == (
        "judge_failed", "unclear",
    )  # fmt: skip
    assert "2 planned = 1 scored + 1 failed" in finished.out
    assert "\nfailed: 1 of 2 rollouts (50.0 %)\nlook:     " in finished.out
    stored.write("resources_servers/answers/judge", "")
    finished = graded(stored, CONFIG, "--judge-failed-only", "--resume", "--max-failed-share", "0")
    assert "2 planned = 2 scored (1 of them earlier)" in finished.out
    assert read(stored, "new.jsonl")[3, 0]["reward"] == 2.0


def test_run_without_judge_failures_is_noted(stored):
    write(stored, "run_failures.jsonl", [judge_failed("wrong", 0)])
    finished = graded(stored, CONFIG, "--judge-failed-only")
    assert (
        "note: run_failures.jsonl has no unscored rollout whose judge failed, so there is nothing to grade. "
        in finished.err
    )
    assert len(read(stored, "new.jsonl")) == 3


def test_too_large_failed_share_sets_exit_code(stored):
    finished = graded(stored, CONFIG, "--judge-failed-only", "+max_failed_share=0.4", code=1)
    assert "Error: max_failed_share: 1 of 2 rollouts failed (50.0 %), but only 40.0 % may." in finished.err


def test_graded_rollouts_can_be_appended_to_input(stored):
    words = ("+output_jsonl_fpath=run.jsonl", "--judge-failed-only")
    assert "run.jsonl is one of the inputs" in graded(stored, CONFIG, *words, "--overwrite", code=1).err
    graded(stored, CONFIG, *words, "--append", "--disable-aggregation")
    assert [row["reward"] for row in read(stored, "run.jsonl").values()] == [0.25, 0.25, 0.25, 1.0]
    assert not (stored.folder / "run_aggregate_metrics.json").exists()


def test_output_that_shares_files_with_input_is_rejected(stored):
    failures = (stored.folder / "run_failures.jsonl").read_bytes()
    refused = graded(stored, CONFIG, "+output_jsonl_fpath=run.new", code=1)
    assert "Error: run.new: the run would replace run_failures.jsonl, which belongs to run.jsonl, " in refused.err
    assert (stored.folder / "run_failures.jsonl").read_bytes() == failures


def test_output_is_replaced_or_resumed_only_if_asked(stored):
    graded(stored, CONFIG, "--limit", "1")
    assert list(read(stored, "new.jsonl")) == [(0, 0)]
    refused = graded(stored, CONFIG, code=1)
    assert refused.err == (
        "Error: new.jsonl already contains rollouts. Add --resume to grade only "
        "the missing ones, --overwrite to replace it, or choose another output.\n"
    )
    assert "3 planned = 3 scored (1 of them earlier)" in graded(stored, CONFIG, "--resume").out
    graded(stored, CONFIG, "--limit", "2", "--overwrite")
    assert list(read(stored, "new.jsonl")) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("mode", ["UNKNOWN", pytest.param("UNSUPPORTED", marks=pytest.mark.slow)])
def test_server_without_reverify_support_needs_force(workplace, mode):
    lay_out(workplace, mode=mode)
    refused = graded(workplace, CONFIG, code=1)
    assert f"answers ({mode.lower()}): may need more than the row and the response for grading" in refused.err
    assert "Add --force to write them anyway, to unsafe_new.jsonl." in refused.err
    graded(workplace, CONFIG, "--force")
    assert len(read(workplace, "unsafe_new.jsonl")) == 3
    assert not (workplace.folder / "new.jsonl").exists()


def test_single_server_without_agents_grades_all(stored):
    stored.write("answers.yaml", BLOCKS.partition("answers_agent:")[0])
    graded(stored, CONFIG)
    assert len(read(stored, "new.jsonl")) == 3


def test_without_config_running_servers_are_used(stored):
    config = "+config_paths=[answers.yaml,responses_api_models/sample_model/configs/sample_model.yaml]"
    servers = stored.start_servers(config)
    finished = stored.run("ng", "eval", "reverify", *WORDS)
    servers.end()
    assert (finished.code, len(read(stored, "new.jsonl"))) == (0, 3), finished.err


def test_mismatched_inputs_are_rejected_before_servers_start(stored):
    write(stored, "in.jsonl", [asked(0)])
    assert graded(stored, CONFIG, code=1).err == (
        "Error: in.jsonl: the rows of 2 rollouts (task:rollout) are missing: 1:0, 2:0. Pass the materialized inputs "
        "of the same collection.\n"
    )
    write(stored, "in.jsonl", [{**asked(task), "agent_ref": {"name": "other_agent"}} for task in range(3)])
    assert "does not define a resources server for the rollouts of other_agent" in graded(stored, CONFIG, code=1).err
    write(stored, "run.jsonl", [])
    assert "run.jsonl does not contain rollouts" in graded(stored, CONFIG, code=1).err
    assert not (stored.folder / "new.jsonl").exists()


def test_images_that_have_moved_are_taken_from_the_rollouts(stored):
    def with_part(row, part):
        content = [{"type": "input_image", **part}]
        return {**row, "responses_create_params": {"input": [{"role": "user", "content": content}]}}

    url = "data:image/png;base64,AAAA"
    write(stored, "in.jsonl", [with_part(asked(0), {"image_path": "gone.png"}) | {"_ng_media_dir": "nowhere"}])
    write(stored, "run.jsonl", [with_part(done("right", 0), {"image_url": url})])
    write(stored, "run_failures.jsonl", [])
    graded(stored, CONFIG)
    (row,) = read(stored, "new.jsonl").values()
    assert (row["reward"], row["responses_create_params"]["input"][0]["content"][0]["image_url"]) == (1.0, url)
