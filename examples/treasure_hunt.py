"""Train a tiny Llama to find treasures. It also learns the tasks on which it is never trained.

    python examples/treasure_hunt.py [--steps 120] [--seeds 0 1 2] [--output results/treasure_hunt.svg]

A game has up to four turns: in each, the policy reads its own place and that of the treasure, and walks one step. A
quarter of all pairs of places is held out: the policy is tested on them, but never trained. Rollouts go on while it is
trained, as in `async_grpo.py`. Each training is a run that `ng view` opens, with the versions of its policy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice, product
from pathlib import Path

from counter_servers import endpoint, servers_of
from learner import Engine, Learner, Policy, engine
from table.curve import Curves, draw, of_seeds, picture
from tiny_llama import make_model, make_tokenizer

from nemo_gym.errors import RolloutError, UserError
from nemo_gym.jsonl import JsonObject
from nemo_gym.training import Group, TrainingClient

ROOT = Path(__file__).parent / "games"
CONFIG = "resources_servers/treasure_hunt/configs/treasure_hunt.yaml"
PLACES = list(product(range(1, 4), repeat=2))
MOVES = ["Up", "Down", "Left", "Right"]
PROMPT = "Find the treasure."
WORDS = [
    *PROMPT.split(),
    *(f"{n}={i}" for n in ("row", "column", "treasure_row", "treasure_column") for i in range(1, 4)),
]
GROUP = 8
"""Rollouts of each task."""
BATCH = 12
"""Groups of each step."""
MAX_STALENESS = 4
EVERY = 10
"""Steps between two tests."""
TRAINED, HELD_OUT = "trained tasks", "held-out tasks"


def policy(seed: int) -> Policy:
    """Return a policy that has not learned anything."""
    tokenizer = make_tokenizer(WORDS, MOVES)
    return make_model(tokenizer, seed, MOVES), tokenizer


def tasks() -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the tasks to train on, and those that are held out. They are the same for each seed."""
    rows = [
        {
            "responses_create_params": {"input": PROMPT, "max_output_tokens": 3},
            "start": start,
            "treasure": treasure,
        }
        for start, treasure in product(PLACES, repeat=2)
        if start != treasure
    ]
    random.Random(0).shuffle(rows)
    return rows[len(rows) // 4 :], rows[: len(rows) // 4]


def endless(rows: Sequence[JsonObject], seed: int) -> Iterator[JsonObject]:
    """Yield the rows again and again, in another order each time."""
    order = random.Random(seed)
    while True:
        yield from order.sample(rows, len(rows))


async def test(client: TrainingClient, rows: Sequence[JsonObject]) -> float:
    """Return the mean reward on rows, of four rollouts each."""
    return statistics.fmean([reward async for group in client.rollouts(rows, 4) for reward in group.rewards])


async def train(given: argparse.Namespace, seed: int, head: str, served: Engine) -> Curves:
    """Train a new policy. Return the mean rewards of the steps since the last test, and those of the tests."""
    rows, held_out = tasks()
    learner = Learner(policy(seed)[0], given.learning_rate)
    served.push(learner.weights)
    async with (
        TrainingClient(
            head, in_flight=BATCH * GROUP, max_staleness=MAX_STALENESS, on_stale="drop", failed_rollouts="raise",
            record=given.record(seed),
        ) as client,
        TrainingClient(head, failed_rollouts="raise") as tester,
        aclosing(client.rollouts(islice(endless(rows, seed), given.steps * BATCH), GROUP)) as groups,
    ):  # fmt: skip
        rewards: list[float] = []
        curves: Curves = {HELD_OUT: [(1, await test(tester, held_out))], TRAINED: []}
        for step in range(1, given.steps + 1):
            batch: list[Group] = [await anext(groups) for _ in range(BATCH)]
            rewards += [reward for group in batch for reward in group.rewards]
            staleness = max((client.staleness(rollout) for group in batch for rollout in group.rollouts), default=0)
            # Rollouts go on in the event loop.
            difference = await asyncio.to_thread(learner.step, batch)
            await asyncio.to_thread(served.push, learner.weights)
            client.set_policy()
            client.note(step=step, staleness=staleness, log_prob_difference=difference)
            if step in (1, given.steps) or step % EVERY == 0:
                if step > 1:
                    curves[HELD_OUT].append((step, await test(tester, held_out)))
                curves[TRAINED].append((step, statistics.fmean(rewards)))
                rewards.clear()
                client.note(held_out_reward=curves[HELD_OUT][-1][1])
                columns = " ".join(f"{points[-1][1]:14.2f}" for points in curves.values())
                far = "-" if difference is None else f"{difference:.4f}"
                print(f"{step:4} {columns} {staleness:9} {far:>11}", flush=True)
    return curves


def train_all(given: argparse.Namespace) -> list[Curves]:
    """Train one policy after the other, each with another seed, on the same servers."""
    os.environ["NEMO_GYM_EXTRA_ROOTS"] = str(ROOT)
    runs: list[Curves] = []
    with engine(partial(policy, 0)) as served, servers_of(endpoint(served.url), CONFIG) as head:
        for seed in given.seeds:
            print(f"seed {seed}: {given.record(seed)}\nstep {HELD_OUT:>14} {TRAINED:>14} staleness  difference")
            runs.append(asyncio.run(train(given, seed, head, served)))
    return runs


def options_of(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120, help="default: 120")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: 0.002")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings (default: 0 1 2)")
    parser.add_argument("--output", type=picture, default="results/treasure_hunt.svg",
                        help="the picture (default: results/treasure_hunt.svg)")  # fmt: skip
    given = parser.parse_args(words)
    if given.steps < 1:
        parser.error("--steps must be at least 1")
    given.seeds = list(dict.fromkeys(given.seeds))
    begun = time.strftime("%Y%m%d_%H%M%S")
    given.record = lambda seed: given.output.with_name(f"{given.output.stem}_{begun}_seed{seed}.jsonl")
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Train, and draw the curves."""
    given = options_of(words)
    try:
        runs = train_all(given)
    except (UserError, RolloutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    # No policy has learned anything before its first step.
    untrained = statistics.fmean(curves[HELD_OUT][0][1] for curves in runs)
    title = f"Reward of a tiny Llama in a game of several turns, {BATCH * GROUP} rollouts per step{of_seeds(runs)}"
    draw(runs, title, given.output, random=untrained)
    print(f"learning curve: {given.output}")
    print(f"look: {os.path.relpath(Path(sys.executable).with_name('ng'))} view {given.record(given.seeds[-1])}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sys.exit(main())
