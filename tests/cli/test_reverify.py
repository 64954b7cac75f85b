"""`ng eval reverify`: stored rollouts are graded again, by the row and the response alone."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.testing import reply

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


def done(text, task, repeat=0, **told):
    return {**asked(task, repeat), "response": reply(text).model_dump(mode="json"), "reward": 0.25, **told}


def judge_failed(text, task, repeat=0):
    return done(text, task, repeat, _ng_failure_class="judge_failed", _ng_failure_judge_error="no judge is here")


def write(workplace, path, rows):
    workplace.write(path, "".join(orjson.dumps(row).decode() + "\n" for row in rows))


def read(workplace, path):
    rows = [orjson.loads(line) for line in (workplace.folder / path).read_bytes().splitlines()]
    return {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in rows}


@pytest.fixture
def stored(workplace):
    """A run of three tasks, graded by who knows whom; a fourth and a fifth failed for want of a judge, one twice."""
    lay_out(workplace, mode="STATELESS")
    return workplace


def lay_out(workplace, mode):
    workplace.write("resources_servers/answers/app.py", SERVER.replace(".MODE\n", f".{mode}\n"))
    workplace.write("answers.yaml", BLOCKS)
    write(workplace, "in.jsonl", [asked(task) for task in range(6)])
    write(workplace, "run.jsonl", [done("right", 0), done("wrong", 1), done("right", 2)])
    failures = [judge_failed("wrong", 3), judge_failed("unclear", 3), judge_failed("right", 4)]
    # Of these, one was scored by a later attempt, and one has no response at all.
    failures += [judge_failed("wrong", 0), {**asked(5), "_ng_failure_class": "timeout"}]
    write(workplace, "run_failures.jsonl", failures)


def graded(workplace, *words, code=0):
    finished = workplace.run("ng", "eval", "reverify", *WORDS, "+head_server.port=0", *words)
    assert finished.code == code, finished.err
    return finished


def test_every_stored_rollout_is_graded_again_without_its_agent_or_a_model(stored):
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


def test_those_whose_judge_failed_are_graded_and_the_others_kept(stored):
    finished = graded(stored, CONFIG, "--judge-failed-only")
    rewards = {key: row["reward"] for key, row in read(stored, "new.jsonl").items()}
    assert rewards == {(0, 0): 0.25, (1, 0): 0.25, (2, 0): 0.25, (4, 0): 1.0}
    failure = read(stored, "new_failures.jsonl")[3, 0]
    assert (failure["_ng_failure_class"], failure["response"]["output"][0]["content"][0]["text"]) == (
        "judge_failed", "unclear",
    )  # fmt: skip
    assert "2 planned = 1 scored + 1 failed" in finished.out
    stored.write("resources_servers/answers/judge", "")
    finished = graded(stored, CONFIG, "--judge-failed-only", "--resume")
    assert "2 planned = 2 scored (1 of them earlier)" in finished.out
    assert read(stored, "new.jsonl")[3, 0]["reward"] == 2.0


def test_what_was_graded_may_be_added_to_the_rollouts_themselves(stored):
    words = ("+output_jsonl_fpath=run.jsonl", "--judge-failed-only")
    assert "run.jsonl: is one of the inputs" in graded(stored, CONFIG, *words, "--overwrite", code=1).err
    graded(stored, CONFIG, *words, "--append", "--disable-aggregation")
    assert [row["reward"] for row in read(stored, "run.jsonl").values()] == [0.25, 0.25, 0.25, 1.0]
    assert not (stored.folder / "run_aggregate_metrics.json").exists()


def test_an_output_is_replaced_or_gone_on_with_only_if_asked(stored):
    graded(stored, CONFIG, "--limit", "1")
    assert list(read(stored, "new.jsonl")) == [(0, 0)]
    refused = graded(stored, CONFIG, code=1)
    assert refused.err == (
        "Error: new.jsonl: holds rollouts already. Add +overwrite=true to replace it, +resume_from_cache=true to "
        "grade what it lacks, or choose another output.\n"
    )
    assert "3 planned = 3 scored (1 of them earlier)" in graded(stored, CONFIG, "--resume").out
    graded(stored, CONFIG, "--limit", "2", "--overwrite")
    assert list(read(stored, "new.jsonl")) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("mode", ["UNKNOWN", "UNSUPPORTED"])
def test_a_server_that_needs_the_rollout_itself_is_asked_only_by_force(workplace, mode):
    lay_out(workplace, mode=mode)
    refused = graded(workplace, CONFIG, code=1)
    assert f"answers ({mode.lower()}): not known to grade by the row and the response alone" in refused.err
    assert "Add +force=true to have them all the same, in unsafe_new.jsonl." in refused.err
    graded(workplace, CONFIG, "--force")
    assert len(read(workplace, "unsafe_new.jsonl")) == 3
    assert not (workplace.folder / "new.jsonl").exists()


def test_the_one_server_of_a_config_without_agents_grades_whatever_there_is(stored):
    stored.write("answers.yaml", BLOCKS.partition("answers_agent:")[0])
    graded(stored, CONFIG)
    assert len(read(stored, "new.jsonl")) == 3


def test_without_a_config_the_servers_that_are_up_are_asked(stored):
    config = "+config_paths=[answers.yaml,responses_api_models/sample_model/configs/sample_model.yaml]"
    servers = stored.start_servers(config)
    finished = stored.run("ng", "eval", "reverify", *WORDS)
    servers.end()
    assert (finished.code, len(read(stored, "new.jsonl"))) == (0, 3), finished.err


def test_what_does_not_fit_together_is_told_before_any_server_starts(stored):
    write(stored, "in.jsonl", [asked(0)])
    assert graded(stored, CONFIG, code=1).err == (
        "Error: in.jsonl: 2 rollouts (task:rollout) have no row there: 1:0, 2:0. Give the materialized inputs of the "
        "same collection.\n"
    )
    write(stored, "in.jsonl", [{**asked(task), "agent_ref": {"name": "other_agent"}} for task in range(3)])
    assert "no resources server is known for the rollouts of other_agent" in graded(stored, CONFIG, code=1).err
    write(stored, "run.jsonl", [])
    assert "run.jsonl: no rollouts in it" in graded(stored, CONFIG, code=1).err
    assert not (stored.folder / "new.jsonl").exists()
