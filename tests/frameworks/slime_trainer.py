"""The training data that miles, a fork of slime, makes of samples with the page's module.

`slime_trainer.py < results.json` needs a Python that has miles and this package, and runs in a folder with
`gym_samples.py`. The last line of the output has the sequences that would be trained on.
"""

import json
import sys
from types import SimpleNamespace

from absent import replace_packages

replace_packages("flash_attn", "sglang", "sglang_router")

from gym_samples import samples_of  # noqa: E402
from miles.ray.rollout import RolloutManager  # noqa: E402
from miles.utils.types import Sample  # noqa: E402

from nemo_gym.training import sequences_of  # noqa: E402

Manager = RolloutManager.__ray_metadata__.modified_class
ARGS = SimpleNamespace(
    advantage_estimator="grpo", grpo_std_normalization=True, n_samples_per_prompt=4, reward_key=None,
    rewards_normalization=True, rollout_batch_size=1, use_dynamic_global_batch_size=False,
)  # fmt: skip


def main() -> None:
    results = json.load(sys.stdin)
    prompts = [Sample(group_index=7, index=at) for at in range(len(results))]
    rollouts = [SimpleNamespace(sequences=lambda result=result: sequences_of(result)) for result in results]
    samples = [each for pair in zip(prompts, rollouts, strict=True) for each in samples_of(*pair, 0.5)]
    for each in samples:
        each.validate()
    manager = object.__new__(Manager)
    manager.args = ARGS
    manager.custom_convert_samples_to_train_data_func = manager.custom_reward_post_process_func = None
    data = manager._convert_samples_to_train_data(samples)
    report = []
    for at, tokens in enumerate(data["tokens"]):
        before = len(tokens) - data["response_lengths"][at]
        trained = [index for index, bit in enumerate(data["loss_masks"][at]) if bit]
        report.append(
            {
                "sample": data["sample_indices"][at],
                "group": samples[at].group_index,
                "tokens": tokens,
                "trained": [before + index for index in trained],
                "log_probs": [data["rollout_log_probs"][at][index] for index in trained],
                "raw_reward": data["raw_reward"][at],
                "reward": data["rewards"][at],
                "versions": data["weight_versions"][at],
                "oldest": samples[at].oldest_weight_version,
                "status": samples[at].status.value,
            }
        )
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    main()
