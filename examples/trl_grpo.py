"""Train a tiny Llama with TRL's GRPOTrainer on rollouts of our servers: `python examples/trl_grpo.py`.

The policy begins with random weights, plays the counter of example_session_state_mgmt through real servers, and learns
to call the right tool. With `--engine vllm`, a vLLM serves it, which gets the new weights after each step. With
`--environment`, TRL's own tool loop plays instead of our agent.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from counter_servers import ENVIRONMENT, counter_servers, endpoint, rows
from policy_server import PolicyServer
from table.curve import Curves, draw
from tiny_llama import make_model, make_tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer
from vllm_engine import PYTHON, VLLMEngine

from nemo_gym.errors import RolloutError, UserError
from nemo_gym.training import trl as gym

GENERATIONS = 16
BATCH = len(rows()) * GENERATIONS
LARGEST_DIFFERENCE = 1e-4
"""The largest difference of log-probabilities that are computed twice in float32. Allow more with bfloat16."""


class CheckedRollouts:
    """A `rollout_func` that compares the captured log-probabilities of each batch with the trainer's own."""

    def __init__(self, rollouts: gym.Rollouts) -> None:
        self._rollouts = rollouts
        self.differences: list[float] = []
        """Those of the latest batch, one for each token that the policy sampled."""

    def __call__(self, prompts: Sequence[Any], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        fields = self._rollouts(prompts, trainer)
        own = log_probs_of(trainer.model, fields["prompt_ids"], fields["completion_ids"], trainer.temperature)
        self.differences = [
            abs(mine - captured)
            for row in zip(own, fields["logprobs"], fields["env_mask"], strict=True)
            for mine, captured, is_sampled in zip(*row, strict=True)
            if is_sampled
        ]
        return fields


@torch.no_grad()
def log_probs_of(
    model: PreTrainedModel, prompts: list[list[int]], completions: list[list[int]], temperature: float
) -> list[list[float]]:
    """Return a model's log-probability of each token of each completion."""
    ids = [torch.tensor(prompt + completion) for prompt, completion in zip(prompts, completions, strict=True)]
    # The padding is on the right, so the tokens before it do not attend to it.
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(model.device)
    logits = model(input_ids=padded[:, :-1]).logits.float() / temperature
    found = torch.log_softmax(logits, dim=-1).gather(-1, padded[:, 1:, None])[..., 0].tolist()
    return [
        row[len(prompt) - 1 : len(prompt) - 1 + len(completion)]
        for row, prompt, completion in zip(found, prompts, completions, strict=True)
    ]


class Report(TrainerCallback):
    """A line for each step: its mean reward, and how far its log-probabilities are from the trainer's own."""

    def __init__(self, checked: CheckedRollouts | None = None) -> None:
        self._checked = checked
        self._begun = time.monotonic()
        self.rewards: list[float] = []

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "reward" not in logs:
            return
        self.rewards.append(float(logs["reward"]))
        line = f"step {state.global_step}: reward {self.rewards[-1]:.2f}"
        found = self._checked.differences if self._checked else []
        if found:
            mean, largest = sum(found) / len(found), max(found)
            line += f", log-probabilities differ by {mean:.1e} on average, {largest:.1e} at most"
            if largest > LARGEST_DIFFERENCE:
                line += (
                    f"\nstep {state.global_step}: this is more than {LARGEST_DIFFERENCE:g}: the policy that sampled "
                    "is not the one that was trained. Perhaps the engine has older weights, or another precision or "
                    "temperature."
                )
        print(f"{line} ({time.monotonic() - self._begun:.0f} s)", flush=True)


class Push(TrainerCallback):
    """Gives the engine the new weights after every few steps."""

    def __init__(self, push: Callable[[PreTrainedModel], None], every: int) -> None:
        self._push = push
        self._every = every

    def on_step_end(self, args: Any, state: TrainerState, control: Any, model: PreTrainedModel, **_: Any) -> None:
        if state.global_step % self._every == 0:
            self._push(model)


def grpo_config(steps: int, seed: int, folder: str) -> GRPOConfig:
    """Return the trainer's settings. Each batch holds every task."""
    return GRPOConfig(
        output_dir=folder, seed=seed, max_steps=steps, learning_rate=3e-3, lr_scheduler_type="constant",
        per_device_train_batch_size=BATCH, num_generations=GENERATIONS, shuffle_dataset=False,
        max_completion_length=4, max_tool_calling_iterations=2, temperature=1.0, beta=0.0, entropy_coef=0.01,
        use_cpu=True, bf16=False, gradient_checkpointing=False, logging_steps=1, report_to="none", save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip


@contextmanager
def served(
    given: argparse.Namespace, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str
) -> Iterator[tuple[str, list[TrainerCallback]]]:
    """Start the servers with the model as their policy. Yield their address and the callbacks of the trainer."""
    if given.engine == "vllm":
        engine = VLLMEngine(model, tokenizer, Path(folder, "served"), given.engine_python)
        with counter_servers(engine.settings) as head:
            yield head, [Push(engine.push, given.push_every)]
    else:
        with PolicyServer(model, tokenizer) as policy, counter_servers(endpoint(policy.url)) as head:
            yield head, []


def train_on_rollouts(given: argparse.Namespace, folder: str) -> list[float]:
    """Train on the rollouts of our agent, and return the mean reward of each step."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, given.seed)
    with (
        served(given, model, tokenizer, folder) as (head, callbacks),
        gym.Rollouts(head, failed_rollouts="raise") as rollouts,
    ):
        checked = CheckedRollouts(rollouts)
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, args=grpo_config(given.steps, given.seed, folder),
            train_dataset=gym.dataset(rows()), rollout_func=checked, reward_funcs=rollouts.reward, callbacks=callbacks,
        )  # fmt: skip
        return rewards_of(trainer, Report(checked))


def train_in_environment(given: argparse.Namespace, folder: str) -> list[float]:
    """Train with TRL's tool loop, and return the mean reward of each step. Only the environment's server is ours."""
    tokenizer = make_tokenizer()
    with gym.environment(ENVIRONMENT) as counter:
        trainer = GRPOTrainer(
            model=make_model(tokenizer, given.seed), processing_class=tokenizer,
            args=grpo_config(given.steps, given.seed, folder), train_dataset=gym.dataset(rows()),
            environment_factory=counter, reward_funcs=counter.reward,
        )  # fmt: skip
        return rewards_of(trainer, Report())


def rewards_of(trainer: GRPOTrainer, report: Report) -> list[float]:
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(report)
    trainer.train()
    return report.rewards


def curves_of(rewards: list[float]) -> Curves:
    """Return the curves to draw: the reward of each step, and the mean of the latest ten steps."""
    latest = [rewards[max(0, step - 10) : step] for step in range(1, len(rewards) + 1)]
    means = [sum(part) / len(part) for part in latest]
    return {"mean of 10 steps": list(enumerate(means, start=1)), "one step": list(enumerate(rewards, start=1))}


def options_of(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="draw the rewards in this SVG file")
    parser.add_argument("--environment", action="store_true", help="use TRL's tool loop instead of our agent")
    parser.add_argument("--engine", choices=["trainer", "vllm"], default="trainer", help="what samples for our agent")
    parser.add_argument("--engine-python", type=Path, default=PYTHON, help="an interpreter that can import vLLM")
    parser.add_argument("--push-every", type=int, default=1, help="steps after which vLLM gets the weights")
    given = parser.parse_args(words)
    if given.environment and given.engine == "vllm":
        parser.error("--environment samples with the trainer. Leave out --engine vllm")
    if min(given.steps, given.push_every) < 1:
        parser.error("--steps and --push-every must be at least 1")
    if given.engine == "vllm" and not given.engine_python.is_file():
        parser.error(f"{given.engine_python} not found. Run `make engine`, or name another --engine-python")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = options_of(words)
    train = train_in_environment if given.environment else train_on_rollouts
    try:
        with tempfile.TemporaryDirectory() as folder:
            rewards = train(given, folder)
    except (UserError, RolloutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        draw(
            [curves_of(rewards)], f"Reward of a tiny Llama trained with GRPO, {BATCH} rollouts per step", given.output
        )
    first, last = (sum(part) / len(part) for part in (rewards[:5], rewards[-5:]))
    print(f"mean reward of the first 5 steps: {first:.2f}, of the last 5: {last:.2f}")
    return 0 if last > first else 1


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sys.exit(main())
