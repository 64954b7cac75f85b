"""Rollouts run from a program: what comes back for each row."""

from __future__ import annotations

from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import JudgeFailed
from nemo_gym.rollouts.helper import RolloutCollectionHelper

JUDGE_FAILED = '{"_ng_failure_class": "judge_failed", "reward": 0.0, "_ng_failure_judge_error": "no verdict"}'


async def test_a_rollout_whose_judge_failed_is_raised_and_the_others_are_rewarded(agent, make_task):
    rows = [
        {
            **make_task(number, **fields),
            "agent_ref": {"name": "sound"},
            "_ng_task_index": number,
            "_ng_rollout_index": 0,
        }
        for number, fields in enumerate([{"act": "answer", "bytes": JUDGE_FAILED}, {"earns": 1}])
    ]
    head = BaseServerConfig(host="127.0.0.1", port=agent.port)
    failures, rewards = [], []
    for rollout in RolloutCollectionHelper().run_examples(rows, head_server_config=head):
        try:
            row, result = await rollout
        except JudgeFailed as error:
            failures.append(str(error))
        else:
            rewards.append((row["number"], result["reward"]))
    assert (failures, rewards) == (["no verdict"], [(1, 1)])
