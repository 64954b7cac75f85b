"""The data of one step of the tinker cookbook, from rollouts with the page's module.

`tinker_trainer.py HEAD ENGINE < rows.json` needs a Python that has the cookbook and this package, and runs in a folder
with `gym_groups.py`. The last line of the output has the sequences of the data that would be sent to Tinker.
"""

import asyncio
import json
import sys

import torch
from gym_groups import group_of, trajectory_of
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.train import _remove_mask
from tinker_cookbook.rl.types import TrajectoryGroup

from nemo_gym.training import TrainingClient, sequences_of

MASKED_TURN = {
    "type": "message", "role": "assistant", "content": [], "prompt_token_ids": [1, 2], "generation_token_ids": [3, 4],
    "generation_log_probs": [-0.5, -0.25],
}  # fmt: skip
MASKED = {"response": {"output": [MASKED_TURN]}, "reward": 1.0, "mask_sample": True}


async def rollouts_of(head, engine, rows):
    """Return the trajectories of all rows as one group, because those of one row earn the same."""
    whole = TrajectoryGroup([], [], [])
    async with TrainingClient(head) as client:
        client.set_policy(f"{engine}/v1")
        async for group in client.rollouts(rows, repeats=2, sampling={"temperature": 0.9, "top_p": 0.95}):
            found = group_of(group)
            whole.trajectories_G += found.trajectories_G
            whole.final_rewards_G += found.final_rewards_G
            whole.metrics_G += found.metrics_G
    return whole


def masked_inputs():
    """Return what the loss gets of a masked rollout with an advantage."""
    group = TrajectoryGroup([trajectory_of(sequences_of(MASKED))], [1.0], [{}])
    (datum,), _ = assemble_training_data([group], [torch.tensor([1.0])])
    return {name: each.to_torch().tolist() for name, each in datum.loss_fn_inputs.items()}


async def main() -> None:
    head, engine = sys.argv[1:]
    group = await rollouts_of(head, engine, json.load(sys.stdin))
    data, owners = assemble_training_data([group], compute_advantages([group]))
    report = []
    for datum, owner in zip(data, owners, strict=True):
        mask = datum.loss_fn_inputs["mask"].to_torch().tolist()
        fields = {name: each.to_torch().tolist() for name, each in _remove_mask(datum).loss_fn_inputs.items()}
        targets = fields["target_tokens"]
        trained = [at for at, bit in enumerate(mask) if bit]
        report.append(
            {
                "rollout": owner["traj_idx"],
                "reward": group.get_total_rewards()[owner["traj_idx"]],
                "tokens": [*datum.model_input.to_ints(), targets[-1]],
                # A target is the token after its position.
                "trained": [at + 1 for at in trained],
                "log_probs": [fields["logprobs"][at] for at in trained],
                "advantages": sorted({round(fields["advantages"][at], 4) for at in trained}),
                "others": sorted({fields["advantages"][at] for at in range(len(mask)) if not mask[at]}),
            }
        )
    sys.stdout.write(f"{json.dumps({'sequences': report, 'masked': masked_inputs()})}\n")


if __name__ == "__main__":
    asyncio.run(main())
