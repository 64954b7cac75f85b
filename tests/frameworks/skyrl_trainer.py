"""One step of SkyRL's trainer on a CPU: the page's generator, its checks, tensors, advantages and policy loss.

`skyrl_trainer.py HEAD ENGINE < rows.json` needs a Python that has SkyRL and this package, and runs in a folder with
`gym_generator.py`. The last line of the output has the sequences that would be trained on. Parts that need a GPU are
left out, so the old log-probabilities are those of the rollout.
"""

import asyncio
import json
import sys
import typing
from types import SimpleNamespace

import typing_extensions
from absent import replace_packages

# SkyRL asks for Python 3.12. Before it, pydantic rejects this class of `typing`.
typing.TypedDict = typing_extensions.TypedDict
replace_packages("flash_attn", "vllm", "vllm_router")

from gym_generator import GymGenerator  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry  # noqa: E402
from skyrl.train.config.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.generators.utils import prepare_generator_input  # noqa: E402
from skyrl.train.trainer import RayPPOTrainer  # noqa: E402

GROUP_SIZE = 2


def trainer_of(generator, prompts):
    """Return a trainer without models."""
    config = SkyRLTrainConfig()
    config.generator.step_wise_trajectories = True
    config.generator.n_samples_per_prompt = GROUP_SIZE
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = prompts
    config.trainer.algorithm.advantage_estimator = "grpo"
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg, trainer.generator, trainer.all_metrics = config, generator, {}
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    return trainer


def trained_positions(trainer, batch):
    """Return which response tokens have a gradient in the policy loss."""
    log_probs = batch["rollout_logprobs"].clone().requires_grad_()
    loss = PolicyLossRegistry.get("regular")
    result, _ = loss(
        log_probs, batch["rollout_logprobs"], batch["advantages"], trainer.cfg.trainer.algorithm, batch["loss_mask"]
    )
    result.backward()
    return log_probs.grad != 0


async def main() -> None:
    head, engine = sys.argv[1:]
    rows = json.load(sys.stdin)
    prompts = [
        {"prompt": [], "env_class": None, "env_extras": {"row": json.dumps(row)}, "uid": f"uid{at}"}
        for at, row in enumerate(rows)
    ]
    trainer = trainer_of(GymGenerator(head, engine), len(prompts))
    sampling = {"temperature": 0.9, "top_p": 0.95}
    batch, _ = prepare_generator_input(prompts, GROUP_SIZE, sampling, "nemo_gym", "train", 5)
    output = await trainer.generate(batch)
    uids = [each.instance_id for each in output["trajectory_ids"]]
    output, uids = trainer.postprocess_generator_output(output, uids)
    data = trainer.convert_to_training_input(output, uids)
    data["values"] = None
    # The rollouts of a row earn the same, so compare those of all rows.
    data.metadata["uids"] = ["all"] * len(uids)
    data = trainer.compute_advantages_and_returns(data)
    trained = trained_positions(trainer, data)
    report = []
    for at, uid in enumerate(uids):
        padding = len(data["sequences"][at]) - int(data["attention_mask"][at].sum())
        before = data["sequences"].shape[1] - data["response_mask"].shape[1] - padding
        report.append(
            {
                "uid": uid,
                "tokens": data["sequences"][at, padding:].tolist(),
                "trained": [before + index for index in trained[at].nonzero().flatten().tolist()],
                "log_probs": data["rollout_logprobs"][at][trained[at]].tolist(),
                "reward": float(data["rewards"][at].sum()),
                "advantage": float(data["advantages"][at].sum() / data["response_mask"][at].sum()),
            }
        )
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    asyncio.run(main())
