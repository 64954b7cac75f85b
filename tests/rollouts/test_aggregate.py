"""Metrics of a run: requested from each agent and written next to the results, which any failure leaves intact."""

from __future__ import annotations

import orjson
import pytest

from nemo_gym.context.deadline import deadline_in
from nemo_gym.errors import DataError
from nemo_gym.rollouts.aggregate import aggregate


def named(agent: str) -> dict[str, dict[str, str]]:
    return {"agent_ref": {"name": agent}}


async def test_metrics_of_each_agent_are_written(run_tasks, make_task, client):
    run = await run_tasks([make_task(0, earns=1.0), make_task(1, earns=0.0), make_task(2, act="crash")])
    metrics = await aggregate(client, run.files)
    assert metrics == [
        {
            "agent_ref": {"name": "sound"},
            "integer_fields": ["number"],
            "agent_metrics": {"mean/reward": 0.5, "pessimistic/mean/reward": pytest.approx(1 / 3)},
            "key_metrics": {"mean/reward": 0.5},
            "group_level_metrics": [],
            "ledger": {"planned": 3, "scored": 2, "failed": {"agent_failed": 1}, "unresolved": 0},
            "failed_tasks": [
                {
                    "_ng_task_index": 2,
                    "num_rollouts": 0,
                    "expected_num_rollouts": 1,
                    "failed": {"agent_failed": 1},
                    "message": "sound: /run answered 500: no such luck",
                }
            ],
        }
    ]
    assert orjson.loads(run.files.metrics.read_bytes()) == metrics


async def test_integer_fields_are_listed(run_tasks, make_task, client):
    first = {"calls": 1, "is_solved": True, "score": 1, "_ng_private": 1}
    run = await run_tasks([make_task(0, **first), make_task(1, **first | {"calls": 0, "score": 0.5})])
    (metrics,) = await aggregate(client, run.files)
    assert metrics["integer_fields"] == ["calls", "number"]


async def test_groups_include_their_completeness(run_tasks, make_task, client):
    groups = [{"_ng_task_index": 0, "num_rollouts": 2}, {"_ng_task_index": [0], "num_rollouts": 1}, {"x": 1}]
    run = await run_tasks([make_task(0, groups=groups[:1]), make_task(1, groups=groups[1:])], num_repeats=4)
    (metrics,) = await aggregate(client, run.files)
    group, *others = metrics["group_level_metrics"][0], *metrics["group_level_metrics"][-2:]
    completeness = {"expected_num_rollouts": 4, "missing_num_rollouts": 2, "reward_profile_completion_pct": 50.0}
    assert group == groups[0] | completeness
    # Other groups of an agent are not changed.
    assert others == groups[1:]


def groups_of(rewards: list[list[float]]) -> list[dict[str, object]]:
    return [
        {"_ng_task_index": n, "num_rollouts": len(each), "rollout_infos": [{"reward": reward} for reward in each]}
        for n, each in enumerate(rewards)
    ]


@pytest.mark.parametrize(
    ("rewards", "low", "high"),
    [
        ([[n % 2] for n in range(10)], 0.2366, 0.7634),
        ([[0.0], [1.0], [2.0]], -1.484, 3.484),
        ([[0.0], [0.5], [1.0]], 0.0, 1.0),
        ([[1.0, 0.0]], None, None),
        ([[0.5]] * 9, None, None),
        ([[0.1, 0.1]] * 9, None, None),
        ([[1e200], [0.5], [3.0]], None, None),
    ],
)
async def test_mean_rewards_of_several_tasks_have_intervals(run_tasks, make_task, client, rewards, low, high):
    run = await run_tasks([make_task(0, groups=groups_of(rewards))])
    (metrics,) = await aggregate(client, run.files)
    found = metrics["agent_metrics"]
    interval = found.get("ci95_low/reward"), found.get("ci95_high/reward")
    assert interval == ((None, None) if low is None else pytest.approx((low, high), abs=0.001))


@pytest.mark.parametrize(("accuracy", "low"), [(50.0, 23.66), (60.0, None)])
async def test_pass_rates_of_rewards_have_intervals(run_tasks, make_task, client, accuracy, low):
    groups = groups_of([[1.0, 0.0], [0.0, 0.0]] * 5)
    found = {"pass@1/accuracy": 25.0, "pass@2/accuracy": accuracy}
    run = await run_tasks([make_task(0, groups=groups, agent_metrics=found)])
    (metrics,) = await aggregate(client, run.files)
    # An accuracy that is not the reward is not described by the rewards.
    assert metrics["agent_metrics"].get("ci95_low/pass@2/accuracy") == (low and pytest.approx(low, abs=0.01))
    assert "ci95_low/pass@1/accuracy" not in metrics["agent_metrics"]


async def test_pass_rates_of_other_groups_have_no_intervals(run_tasks, make_task, client):
    # The environment has grouped the rollouts of several tasks, for example those of one question.
    found = {"pass@1/accuracy": 25.0, "pass@4/accuracy": 50.0}
    run = await run_tasks([make_task(0, groups=groups_of([[1.0, 0.0], [0.0, 0.0]]), agent_metrics=found)])
    (metrics,) = await aggregate(client, run.files)
    assert metrics["agent_metrics"]["pass@4/accuracy"] == 50.0
    assert "ci95_low/pass@4/accuracy" not in metrics["agent_metrics"]


async def test_agents_receive_their_rollouts_without_texts(run_tasks, make_task, client, agent):
    attached = {"ng_model_call_capture": {}, "ng_agent_observations": {}, "ng_trajectory": {}, "_ng_token_capture": {}}
    run = await run_tasks([make_task(0, **attached)])
    await aggregate(client, run.files)
    ((row,),) = agent.state()["bodies_of_metrics"]
    assert row == {
        "number": 0,
        "reward": 1.0,
        "agent_ref": {"type": "responses_api_agents", "name": "sound"},
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "response": {"usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}},
    }


@pytest.mark.parametrize("response", ["null", '"a text"', "{}", '{"usage": null}'])
async def test_response_without_usage_is_omitted(run_tasks, make_task, client, agent, response):
    run = await run_tasks([make_task(0, act="answer", bytes=f'{{"reward": 1, "response": {response}}}')])
    await aggregate(client, run.files)
    ((row,),) = agent.state()["bodies_of_metrics"]
    assert "response" not in row


@pytest.mark.parametrize(("name", "words"), [("mute", "returned 404"), ("sick", "returned 500: division by zero")])
async def test_agent_without_metrics_does_not_affect_others(run_tasks, make_task, client, name, words):
    run = await run_tasks([make_task(0, **named(name)), make_task(1)])
    before = run.files.results.read_bytes()
    with pytest.raises(DataError) as error:
        await aggregate(client, run.files)
    assert f"{name} did not return metrics: /aggregate_metrics {words}" in str(error.value)
    assert f"the rollouts are saved in {run.files.results}" in str(error.value)
    assert run.files.results.read_bytes() == before
    assert [entry["agent_ref"] for entry in orjson.loads(run.files.metrics.read_bytes())] == [{"name": "sound"}]


async def test_outdated_metrics_are_removed(run_tasks, make_task, client):
    run = await run_tasks([make_task(0, **named("mute"))])
    run.files.metrics.write_text("[]")
    with pytest.raises(DataError):
        await aggregate(client, run.files)
    assert not run.files.metrics.exists()


async def test_unreachable_agent_is_reported(run_tasks, make_task, mortal_agent):
    mortal_client = mortal_agent.client()
    run = await run_tasks([make_task(0)], client=mortal_client)
    mortal_agent.process.kill()
    mortal_agent.process.wait()
    with deadline_in(1), pytest.raises(DataError, match=r"rollouts are saved in .* sound did not return metrics: "):
        await aggregate(mortal_client, run.files)
    await mortal_client.aclose()


# The rollouts that the metrics cover


async def test_each_agent_has_a_ledger(run_tasks, make_task, client):
    no_answer = {"act": "answer", "bytes": '{"_ng_no_persist": true}'}
    rows = [
        make_task(0, act="crash"),
        make_task(1, act="fail_until", until=1, failure_class="lost", earns=0.5),
        make_task(2, **no_answer),
        make_task(3, act="model_failed", **named("sick")),
    ]
    run = await run_tasks(rows, num_repeats=2)
    sick, sound = await aggregate(client, run.files)
    assert sound["ledger"] == {"planned": 6, "scored": 2, "failed": {"agent_failed": 2}, "unresolved": 2}
    assert (sound["agent_metrics"]["mean/reward"], sound["agent_metrics"]["pessimistic/mean/reward"]) == (0.5, 0.25)
    assert [task["_ng_task_index"] for task in sound["failed_tasks"]] == [0]
    # Its server is not called, because none of its rollouts was scored.
    assert sick == {
        "agent_ref": {"name": "sick"},
        "agent_metrics": {"pessimistic/mean/reward": 0.0},
        "key_metrics": {},
        "group_level_metrics": [],
        "ledger": {"planned": 2, "scored": 0, "failed": {"model_failed": 2}, "unresolved": 0},
        "failed_tasks": [
            {
                "_ng_task_index": 3,
                "num_rollouts": 0,
                "expected_num_rollouts": 2,
                "failed": {"model_failed": 2},
                "message": "the endpoint is out of memory",
            }
        ],
    }
    for entry in (sick, sound):
        ledger = entry["ledger"]
        assert ledger["planned"] == ledger["scored"] + sum(ledger["failed"].values()) + ledger["unresolved"]


async def test_masked_rollout_is_sent_with_its_mask(run_tasks, make_task, client, agent):
    run = await run_tasks([make_task(0, mask_sample=True)])
    await aggregate(client, run.files)
    ((row,),) = agent.state()["bodies_of_metrics"]
    assert row["mask_sample"] is True


async def test_bodies_larger_than_the_memory_limit_arrive(run_tasks, make_task, client, agent):
    run = await run_tasks([make_task(n, note="x" * 10_000) for n in range(300)])
    await aggregate(client, run.files)
    (rows,) = agent.state()["bodies_of_metrics"]
    assert sorted(row["number"] for row in rows) == list(range(300))
    assert sorted(path.name for path in run.files.results.parent.iterdir()) == [
        "out.jsonl",
        "out_aggregate_metrics.json",
        "out_failures.jsonl",
        "out_materialized_inputs.jsonl",
        "out_run",
        "out_run.json",
    ]
