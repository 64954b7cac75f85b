"""The training sequences of ART, from rollouts with the page's module.

`art_trainer.py < results.json` needs a Python that has ART and this package, and runs in a folder with `gym_art.py`.
The last line of the output has the sequences that would be trained on.
"""

import json
import sys

from art.preprocessing.tokenize import tokenize_trajectory_groups
from gym_art import group_of

from nemo_gym.training.group import Group, Rollout


class Tokenizer:
    """A tokenizer that must not be needed, because all tokens are known."""

    def __getattr__(self, name):
        raise AssertionError(f"the tokenizer was asked for {name}")


def main() -> None:
    rollouts = tuple(Rollout(each, each.get("reward"), None) for each in json.load(sys.stdin))
    group = group_of(Group({}, rollouts, failed=0))
    found = tokenize_trajectory_groups(
        Tokenizer(), [group], allow_training_without_logprobs=False, scale_rewards=True,
        shuffle_group_trajectories=False,
    )  # fmt: skip
    report = []
    for each in found:
        trained = [at for at, bit in enumerate(each.assistant_mask) if bit]
        report.append(
            {
                "tokens": each.token_ids,
                "trained": trained,
                "log_probs": [each.logprobs[at] for at in trained],
                "advantage": round(each.advantage, 4),
                "versions": [each.trajectory.initial_policy_version, each.trajectory.final_policy_version],
            }
        )
    sys.stdout.write(f"{json.dumps({'rollouts': len(group), 'sequences': report})}\n")


if __name__ == "__main__":
    main()
