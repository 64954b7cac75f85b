"""Train a tiny Llama with TRL's GRPOTrainer on rollouts of our servers: `python examples/trl_grpo.py`.

The policy begins with random weights, plays the counter of example_session_state_mgmt through real servers, and learns
to call the right tool. With `--environment`, TRL's own tool loop plays instead of our agent.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import Any

from counter_servers import ENVIRONMENT, counter_servers, rows
from policy_server import PolicyServer
from tiny_llama import make_model, make_tokenizer
from transformers import PrinterCallback, TrainerCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer

from nemo_gym.training import trl as gym

GENERATIONS = 16


class RewardCurve(TrainerCallback):
    """The mean reward of each step, printed as it is logged."""

    def __init__(self) -> None:
        self.rewards: list[float] = []

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "reward" in logs:
            self.rewards.append(float(logs["reward"]))
            print(f"step {state.global_step}: reward {self.rewards[-1]:.2f}", flush=True)


def grpo_config(steps: int, seed: int, folder: str) -> GRPOConfig:
    """Return the trainer's settings. Each batch holds every task."""
    tasks = len(rows())
    return GRPOConfig(
        output_dir=folder, seed=seed, max_steps=steps, learning_rate=3e-3, lr_scheduler_type="constant",
        per_device_train_batch_size=tasks * GENERATIONS, num_generations=GENERATIONS, shuffle_dataset=False,
        max_completion_length=4, max_tool_calling_iterations=2, temperature=1.0, beta=0.0, entropy_coef=0.01,
        use_cpu=True, bf16=False, gradient_checkpointing=False, logging_steps=1, report_to="none", save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip


def rewards_of(trainer: GRPOTrainer) -> list[float]:
    """Train, and return the mean reward of each step."""
    curve = RewardCurve()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(curve)
    trainer.train()
    return curve.rewards


def train_on_rollouts(steps: int, seed: int, folder: str) -> list[float]:
    """Train on the rollouts of our agent. The trainer's own model is the policy of the servers."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed)
    with PolicyServer(model, tokenizer) as policy, counter_servers(policy.url) as head, gym.Rollouts(head) as rollouts:
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, args=grpo_config(steps, seed, folder),
            train_dataset=gym.dataset(rows()), rollout_func=rollouts, reward_funcs=rollouts.reward,
        )  # fmt: skip
        return rewards_of(trainer)


def train_in_environment(steps: int, seed: int, folder: str) -> list[float]:
    """Train with TRL's tool loop. Only the environment's server is ours."""
    tokenizer = make_tokenizer()
    with gym.environment(ENVIRONMENT) as counter:
        trainer = GRPOTrainer(
            model=make_model(tokenizer, seed), processing_class=tokenizer, args=grpo_config(steps, seed, folder),
            train_dataset=gym.dataset(rows()), environment_factory=counter, reward_funcs=counter.reward,
        )  # fmt: skip
        return rewards_of(trainer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", action="store_true", help="use TRL's tool loop instead of our agent")
    given = parser.parse_args()
    train = train_in_environment if given.environment else train_on_rollouts
    with tempfile.TemporaryDirectory() as folder:
        rewards = train(given.steps, given.seed, folder)
    first, last = (sum(part) / len(part) for part in (rewards[:5], rewards[-5:]))
    print(f"mean reward of the first 5 steps: {first:.2f}, of the last 5: {last:.2f}")
    return 0 if last > first else 1


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sys.exit(main())
