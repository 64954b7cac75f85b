"""`run_examples`: rollouts run from a program, as training frameworks do."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ConfigError, InvalidTask, JudgeFailed, Overloaded, RolloutCancelled, RolloutError
from nemo_gym.published.collection_helper import RolloutCollectionHelper

JUDGE_FAILED = {"_ng_failure_class": "judge_failed", "reward": 0.0, "_ng_failure_judge_error": "no verdict"}
MASKED = {"mask_sample": True, "failure_kind": "sandbox", "failure_reason": "disk full", "reward": 0.0}


@pytest.fixture
def run_examples(agent):
    """Call `run_examples` with rows for the agent of these tests."""
    head = BaseServerConfig(host="127.0.0.1", port=agent.port)

    def run(*rows, **settings):
        return RolloutCollectionHelper(**settings).run_examples(list(rows), head_server_config=head)

    return run


@pytest.fixture
def row(make_task):
    def make(number=0, agent="sound", **fields):
        return {**make_task(number, **fields), "agent_ref": {"name": agent}}

    return make


def answering(result):
    return {"act": "answer", "bytes": json.dumps(result)}


async def test_failed_rows_come_last(run_examples, row):
    rows = [row(0, **answering(JUDGE_FAILED)), row(1, act="crash"), row(2), row(3, act="slow", lasts_s=0.3)]
    rewarded, failed = [], []
    for task in run_examples(*rows):
        try:
            given, result = await task
        except RolloutError as error:
            failed.append(error)
        else:
            assert not failed, "a failed row came before a good one"
            rewarded.append((given["number"], result["reward"]))
    assert sorted(rewarded) == [(2, 1.0), (3, 1.0)]
    assert {error.row["number"]: error.failure_class for error in failed} == {0: "judge_failed", 1: "agent_failed"}
    assert "no verdict" in [str(error) for error in failed if isinstance(error, JudgeFailed)]


@pytest.mark.parametrize("kind", ["lost", "overloaded"])
async def test_lost_and_overloaded_rollouts_are_retried(run_examples, row, agent, kind):
    given = row(act="fail_until", failure_class=kind, until=2)
    ((returned, result),) = [await task for task in run_examples(given)]
    assert result["reward"] == 1.0
    assert returned is given
    assert "_ng_attempt_index" not in given
    assert len(agent.state()["begun"]) == 3


@pytest.mark.parametrize(("settings", "environ", "attempts"), [({"max_attempts": 2}, None, 2), ({}, "4", 4)])
async def test_attempts_are_bounded_as_configured(run_examples, row, agent, monkeypatch, settings, environ, attempts):
    if environ:
        monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", environ)
    (task,) = run_examples(row(act="fail_until", failure_class="overloaded", until=9), **settings)
    with pytest.raises(Overloaded):
        await task
    assert len(agent.state()["begun"]) == attempts


async def test_impossible_settings_are_rejected(run_examples, row):
    with pytest.raises(ConfigError, match="max_attempts"):
        run_examples(row(), max_attempts=0)


async def test_unknown_agent_is_rejected_before_sending(run_examples, row, agent):
    with pytest.raises(InvalidTask, match=r"examples\[1\].*'soond'.*Did you mean 'sound'\?") as rejected:
        run_examples(row(0), row(1, agent="soond"), row(2))
    assert rejected.value.status == 422
    assert agent.state()["begun"] == []


async def test_missing_agent_is_rejected_before_sending(run_examples, row, agent):
    with pytest.raises(InvalidTask, match=r"examples\[0\] does not name.*mute, sick, sound|sound, mute, sick"):
        run_examples({"responses_create_params": {"input": "hi"}}, row(1))
    assert agent.state()["begun"] == []


async def test_abandoned_iteration_logs_nothing(run_examples, row, caplog):
    first = next(run_examples(row(0), row(1, act="crash"), row(2, act="crash")))
    assert (await first)[0]["number"] == 0
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=100)
    del first, others
    gc.collect()
    await asyncio.sleep(0)
    assert [record.message for record in caplog.records if "never retrieved" in record.message] == []


async def test_giving_up_one_wait_loses_no_result(run_examples, row, agent):
    tasks = iter(run_examples(row(0, act="held"), row(1, act="held")))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(next(tasks), 0.05)
    agent.release()
    given, _ = await next(tasks)
    assert given["number"] in (0, 1)


async def test_cancelled_run_ends_every_wait(run_examples, row):
    before = asyncio.all_tasks()
    (task,) = run_examples(row(act="held"))
    (running,) = asyncio.all_tasks() - before
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(RolloutCancelled):
        await asyncio.wait_for(task, 100)


async def test_masked_sample_is_mirrored_for_nemo_rl(run_examples, row):
    ((_, result),) = [await task for task in run_examples(row(**answering(MASKED | {"instance_config": {"id": 7}})))]
    marks = {key: value for key, value in MASKED.items() if key != "reward"}
    assert result["instance_config"] == {"id": 7, **marks}
    assert {key: result[key] for key in marks} == marks


@pytest.mark.parametrize("result", [{"reward": 1.0}, {"reward": 1.0, "mask_sample": False}])
async def test_unmasked_sample_gets_no_instance_config(run_examples, row, result):
    ((_, returned),) = [await task for task in run_examples(row(**answering(result)))]
    assert "instance_config" not in returned


async def test_foreign_instance_config_is_kept(run_examples, row):
    ((_, result),) = [await task for task in run_examples(row(**answering(MASKED | {"instance_config": "x.yaml"})))]
    assert result["instance_config"] == "x.yaml"
