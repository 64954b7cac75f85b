"""One step of OpenRLHF on a CPU: the page's executor, its experiences, advantages and policy loss.

`openrlhf_trainer.py < rows.json` needs a Python that has OpenRLHF and this package, and runs in a folder with
`gym_executor.py`. The last line of the output has the sequences that would be trained on. Parts that need a GPU are
left out, so the log-probabilities are those of the rollout.
"""

import asyncio
import json
import sys
from types import SimpleNamespace

import torch
from absent import replace_packages

replace_packages("deepspeed", "flash_attn", "vllm")

from gym_executor import AgentExecutor  # noqa: E402
from openrlhf.models.loss import PolicyLoss  # noqa: E402
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402

TOKENIZER = SimpleNamespace(eos_token_id=2, pad_token_id=0)
SAMPLING = SimpleNamespace(temperature=0.9, top_p=0.95)


async def responses_of(rows):
    executor = AgentExecutor()
    calls = [executor.execute("", json.dumps(row), SAMPLING, 4096, TOKENIZER, None) for row in rows]
    responses = await asyncio.gather(*calls)
    await executor.client.aclose()
    return responses


def maker_of(count):
    """Return a maker of experiences whose groups have `count` samples."""
    algorithm = SimpleNamespace(advantage=SimpleNamespace(estimator="group_norm", gamma=1.0))
    rollout = SimpleNamespace(n_samples_per_prompt=count, micro_batch_size=count)
    reward, train = SimpleNamespace(clip_range=None), SimpleNamespace(dynamic_batch_enable=False)
    maker = object.__new__(RemoteExperienceMaker)
    maker.args = SimpleNamespace(algo=algorithm, rollout=rollout, reward=reward, train=train)
    maker.strategy, maker.tokenizer = SimpleNamespace(args=maker.args), TOKENIZER
    maker.advantage_estimator, maker.kl_ctl = "group_norm", SimpleNamespace(value=0.0)
    return maker


def main() -> None:
    responses = asyncio.run(responses_of(json.load(sys.stdin)))
    generator = object.__new__(SamplesGenerator)
    samples = [generator._process_response_into_experience(each, max_len=4096) for each in responses]
    maker = maker_of(len(samples))
    (batch,) = maker.split_rollout_samples(samples)
    batch.kl = torch.zeros_like(batch.rollout_log_probs)
    (batch,) = maker.compute_advantages_and_returns([batch])
    log_probs = batch.rollout_log_probs.clone().requires_grad_()
    loss, *_ = PolicyLoss()(log_probs, batch.rollout_log_probs, batch.advantages, batch.action_mask)
    loss.backward()
    report = []
    for at in range(len(samples)):
        trained = log_probs.grad[at].nonzero().flatten()
        length = int(batch.attention_mask[at].sum())
        report.append(
            {
                "tokens": batch.sequences[at, :length].tolist(),
                # An action is the token after its position.
                "trained": (trained + 1).tolist(),
                "log_probs": batch.rollout_log_probs[at][trained].tolist(),
                "reward": batch.rewards[at].item(),
                "advantages": sorted({round(each, 4) for each in batch.advantages[at][trained].tolist()}),
            }
        )
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    main()
