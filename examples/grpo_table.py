"""GRPO without torch: train a table of logits in three environments, and draw its learning curve.

    python examples/grpo_table.py [--steps 12] [--mix example_session_state_mgmt=0.5 mcqa=0.25 grl_sokoban=0.25]

Only the policy is a toy: a table memorises, so it never learns the held-out tasks. `treasure_hunt.py` trains a policy
that does. Environments, model server and client are those of a real training run, with exact token ids and
log-probabilities. The same seeds give the same curves.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from table.curve import Curves, draw, of_seeds, picture
from table.policy import Prefix, TablePolicy, served
from table.tasks import TASK_SETS

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.errors import RolloutError, UsageError, UserError
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.jsonl import JsonObject
from nemo_gym.training import Group, InvalidTokens, SyncTrainingClient, Trajectory, mixed

MODEL_SERVER = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
MIX = ("example_session_state_mgmt=0.5", "mcqa=0.25", "grl_sokoban=0.25")
ENVIRONMENTS = {tasks.agent: name for name, tasks in TASK_SETS.items()}
ALL = "all rollouts"
HELD_OUT = "held-out tasks"
LARGEST_DIFFERENCE = 1e-9


def train_all(options: argparse.Namespace, console: Console) -> list[Curves]:
    """Train one policy after the other, each with another seed, on the same servers."""
    policy = TablePolicy()
    with served(policy) as policy_url, environments(options.mix, policy_url) as head:
        return [train(policy, head, seed, options, console) for seed in options.seeds]


def train(policy: TablePolicy, head: str, seed: int, options: argparse.Namespace, console: Console) -> Curves:
    """Train a policy from the beginning. Return the mean rewards of each step, also on tasks that are held out."""
    shares = {TASK_SETS[name].agent: share for name, share in options.mix.items()}
    rows = mixed({TASK_SETS[name].agent: TASK_SETS[name].trained_on() for name in options.mix}, shares, seed)
    policy.forget()
    checked, curves = 0, Curves({name: [] for name in (ALL, HELD_OUT, *options.mix)})
    with (
        SyncTrainingClient(head, failed_rollouts="raise", record=options.record(seed)) as client,
        SyncTrainingClient(head, failed_rollouts="raise") as evaluation,
    ):
        console.print(f"step   reward of {ALL:23}  {HELD_OUT}  {'  '.join(options.mix)}", soft_wrap=True)
        for step in range(1, options.steps + 1):
            begun = time.monotonic()
            batch = [with_seed(row, seed, step, at) for at, row in enumerate(islice(rows, options.tasks))]
            groups = list(client.rollouts(batch, options.group))
            checked += check_log_probs(policy, groups)
            record(step, groups, curves)
            curves[HELD_OUT].append((step, held_out_reward(evaluation, options, seed, step)))
            learn(policy, groups, options.learning_rate)
            client.note(step=step)
            client.set_policy()  # the weights were replaced in place
            console.print(progress(step, curves, time.monotonic() - begun), highlight=False, soft_wrap=True)
    console.print(f"seed {seed}: all {checked:,} captured log-probabilities were those of the policy.")
    return curves


def held_out_reward(client: SyncTrainingClient, options: argparse.Namespace, seed: int, step: int) -> float:
    """Return the mean reward on tasks that are never trained on, with the shares of the mix."""
    weighted = 0.0
    for name, share in options.mix.items():
        agent = {"agent_ref": {"name": TASK_SETS[name].agent}}
        rows = [with_seed(row | agent, seed, step, -1 - at) for at, row in enumerate(TASK_SETS[name].held_out())]
        groups = client.rollouts(rows, max(1, options.group // 4))
        weighted += share * statistics.fmean(reward for group in groups for reward in group.rewards)
    return weighted / sum(options.mix.values())


@contextmanager
def environments(names: Iterable[str], policy_url: str) -> Iterator[str]:
    """Start the servers of environments, as `ng_run` does, and yield the address of the run."""
    config = {
        "config_paths": [*(f"resources_servers/{name}/configs/{name}.yaml" for name in names), MODEL_SERVER],
        "policy_base_url": policy_url,
        "policy_api_key": "none",
        "policy_model_name": "table",
        "head_server": {"host": "127.0.0.1", "port": 0},
        **{name: {"resources_servers": {name: TASK_SETS[name].settings}} for name in names},
    }
    with RunHelper() as servers:
        servers.start(
            GlobalConfigDictParserConfig(initial_global_config_dict=OmegaConf.create(config), skip_load_from_cli=True)
        )
        head = get_global_config_dict()["head_server"]
        yield f"http://{head['host']}:{head['port']}"


def with_seed(row: JsonObject, *numbers: int) -> JsonObject:
    """Return a row whose requests to the endpoint contain a seed, which differs between steps and tasks."""
    metadata = {"extra_body": json.dumps({"seed": hash(numbers)})}
    return {**row, "responses_create_params": {**row["responses_create_params"], "metadata": metadata}}


def learn(policy: TablePolicy, groups: Sequence[Group], learning_rate: float) -> None:
    """Take one policy-gradient step with group-relative advantages."""
    gradient: dict[Prefix, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for group in groups:
        mean, deviation = statistics.fmean(group.rewards), statistics.pstdev(group.rewards)
        # If all rollouts have the same reward, none of them is better than the others.
        for rollout in group.rollouts if deviation else ():
            advantage = (rollout.reward - mean) / deviation
            for prefix, token, _ in sampled_tokens(rollout.trajectory()):
                for other, log_prob in policy.log_probs(prefix).items():
                    gradient[prefix][other] += advantage * ((other == token) - math.exp(log_prob))
    policy.step(gradient, learning_rate)


def sampled_tokens(sequence: Trajectory) -> Iterator[tuple[Prefix, int, float]]:
    """Yield each token that the policy sampled: all tokens before it, the token, its captured log-probability."""
    ids, begin = sequence.prompt_ids + sequence.completion_ids, len(sequence.prompt_ids)
    for at, (is_sampled, log_prob) in enumerate(zip(sequence.mask, sequence.logprobs, strict=True), start=begin):
        if is_sampled:
            yield tuple(ids[:at]), ids[at], log_prob


def check_log_probs(policy: TablePolicy, groups: Sequence[Group]) -> int:
    """Compare the captured log-probabilities with the policy's own, and return their number."""
    checked = 0
    for rollout in (each for group in groups for each in group.rollouts):
        for prefix, token, captured in sampled_tokens(rollout.trajectory()):
            own = policy.log_probs(prefix)[token]
            if abs(captured - own) > LARGEST_DIFFERENCE:
                raise InvalidTokens(
                    f"{rollout.result['agent_ref']['name']}: token {len(prefix)} was captured with log-probability "
                    f"{captured}, but the policy's is {own}. Update the policy only while no rollout is running."
                )
            checked += 1
    return checked


def record(step: int, groups: Sequence[Group], curves: Curves) -> None:
    """Add the mean rewards of a step to the curves."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for name in (ALL, ENVIRONMENTS[group.row["agent_ref"]["name"]]):
            rewards[name] += group.rewards
    for name, values in rewards.items():
        curves[name].append((step, statistics.fmean(values)))


def progress(step: int, curves: Curves, took_s: float) -> str:
    """Return a line about a step."""
    latest = {name: points[-1][1] if points else math.nan for name, points in curves.items()}
    bar = "━" * round(28 * latest[ALL])
    columns = "  ".join(f"{reward:{len(name)}.2f}" for name, reward in latest.items() if name != ALL)
    return f"{step:4}   [green]{bar:28}[/] {latest[ALL]:.2f}  {columns}  {took_s:4.1f} s"


def share_of(word: str) -> tuple[str, float]:
    """Parse ENVIRONMENT=SHARE."""
    name, _, share = word.partition("=")
    if name not in TASK_SETS:
        raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(TASK_SETS)}")
    try:
        return name, float(share)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{word}' needs a number, as in {name}=0.5") from None


def options_of(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="training steps (default: 12)")
    parser.add_argument("--tasks", type=int, default=16, help="tasks of each step (default: 16)")
    parser.add_argument("--group", type=int, default=24, help="rollouts of each task (default: 24)")
    parser.add_argument("--learning-rate", type=float, default=0.5, help="default: 0.5")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings (default: 0 1 2)")
    parser.add_argument("--mix", type=share_of, nargs="+", default=[share_of(word) for word in MIX],
                        metavar="ENVIRONMENT=SHARE", help=f"default: {' '.join(MIX)}")  # fmt: skip
    parser.add_argument("--output", type=picture, default="results/train_demo.svg",
                        help="the picture (default: results/train_demo.svg)")  # fmt: skip
    options = parser.parse_args(words)
    if min(options.steps, options.tasks, options.group) < 1:
        parser.error("--steps, --tasks and --group must be at least 1")
    options.seeds = list(dict.fromkeys(options.seeds))
    begun = time.strftime("%Y%m%d_%H%M%S")
    options.record = lambda seed: options.output.with_name(f"{options.output.stem}_{begun}_seed{seed}.jsonl")
    options.mix = {name: share for name, share in options.mix if share}
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Train, and draw the curves."""
    options = options_of(words)
    try:
        runs = train_all(options, Console())
        # No policy has learned anything before its first step.
        random = statistics.fmean(curves[ALL][0][1] for curves in runs)
        title = f"Reward of a table policy trained with GRPO, {options.group} rollouts per task{of_seeds(runs)}"
        draw(runs, title, options.output, random=random)
    except (UserError, RolloutError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    print(f"learning curve: {options.output}")
    # Without an activated virtual environment, `ng` is not on the PATH.
    print(f"look: {os.path.relpath(Path(sys.executable).with_name('ng'))} view {options.record(options.seeds[-1])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
