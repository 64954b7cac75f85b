"""Train a tiny Llama twice, with and without waiting for rollouts: `python examples/async_grpo.py`.

The environment has a slow tool. The first training samples a batch, waits for its last rollout, and takes a step. The
second one never waits: rollouts go on while it takes steps, with a policy that may be some versions old, and clipped
ratios of new to captured probabilities correct the difference. Both train until the same reward.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from counter_servers import counter_servers, endpoint, rows
from learner import Engine, Learner, Policy, engine
from table.curve import draw
from tiny_llama import make_model, make_tokenizer

from nemo_gym.errors import RolloutError, UserError
from nemo_gym.training import Group, TrainingClient

ROOT = Path(__file__).parent / "slow_tools"
CONFIG = "resources_servers/slow_counter/configs/slow_counter.yaml"
GROUP = 16
"""Rollouts of each task."""
BATCH = len(rows())
"""Groups of each step."""
MAX_STALENESS = 4
IN_FLIGHT = BATCH * GROUP
"""Of rollouts. More of them are older when they are trained on, and teach less."""
LATEST = 10
"""The steps whose mean reward counts, because that of a single one varies."""


class Step(NamedTuple):
    """A step of a training."""

    reward: float
    """The mean of its batch."""
    staleness: int
    """That of the stalest rollout that is trained on, in versions of the policy."""
    ended_s: float
    """Since the training began."""


def policy(seed: int) -> Policy:
    """Return a policy that has not learned anything."""
    tokenizer = make_tokenizer()
    return make_model(tokenizer, seed), tokenizer


async def batches(client: TrainingClient, steps: int, *, waits: bool) -> AsyncGenerator[list[Group], None]:
    """Yield a batch for each step."""
    if waits:
        for _ in range(steps):
            yield [group async for group in client.rollouts(rows(), GROUP)]
        return
    async with aclosing(client.rollouts(islice(cycle(rows()), steps * BATCH), GROUP)) as groups:
        for _ in range(steps):
            yield [await anext(groups) for _ in range(BATCH)]


def latest(steps: Sequence[Step]) -> float:
    """Return the mean reward of the latest steps."""
    return statistics.fmean(step.reward for step in steps[-LATEST:])


async def train(given: argparse.Namespace, head: str, served: Engine, *, waits: bool) -> list[Step]:
    """Train a new policy, and return its steps."""
    learner, steps = Learner(policy(given.seed)[0]), list[Step]()
    served.push(learner.weights)
    begun = time.monotonic()
    async with (
        TrainingClient(
            head, in_flight=IN_FLIGHT, max_staleness=MAX_STALENESS, on_stale="drop", failed_rollouts="raise"
        ) as client,
        aclosing(batches(client, given.steps, waits=waits)) as taken,
    ):
        async for batch in taken:
            # Groups without their stale rollouts may be empty.
            rewards = [reward for group in batch for reward in group.rewards] or [math.nan]
            staleness = max((client.staleness(rollout) for group in batch for rollout in group.rollouts), default=0)
            # Rollouts go on in the event loop.
            await asyncio.to_thread(learner.step, batch)
            await asyncio.to_thread(served.push, learner.weights)
            client.set_policy()
            steps.append(Step(statistics.fmean(rewards), staleness, time.monotonic() - begun))
            print(f"{len(steps):4} {steps[-1].reward:8.2f} {staleness:10} {steps[-1].ended_s:8.1f} s", flush=True)
            if len(steps) >= LATEST and latest(steps) >= given.until:
                break
    return steps


def both(given: argparse.Namespace) -> dict[str, list[Step]]:
    """Train with and without waiting, on the same servers."""
    os.environ["NEMO_GYM_EXTRA_ROOTS"] = str(ROOT)
    found: dict[str, list[Step]] = {}
    with engine(partial(policy, given.seed)) as served, counter_servers(endpoint(served.url), CONFIG) as head:
        for name, waits in (("synchronous", True), ("asynchronous", False)):
            print(f"{name}\nstep   reward  staleness      time")
            found[name] = asyncio.run(train(given, head, served, waits=waits))
    return found


def options_of(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--until", type=float, default=0.7, help=f"the mean reward of {LATEST} steps (default: 0.7)")
    parser.add_argument("--steps", type=int, default=300, help="at most, in each training (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="draw the rewards in this SVG file")
    given = parser.parse_args(words)
    if given.steps < 1:
        parser.error("--steps must be at least 1")
    return given


def summary(found: dict[str, list[Step]]) -> Iterator[str]:
    """Yield a line for each training: its reward at the end, its stalest rollout, and its time."""
    for name, steps in found.items():
        stalest = max(step.staleness for step in steps)
        yield (
            f"{name:12}  reward {latest(steps):.2f} after {len(steps)} steps and {steps[-1].ended_s:.0f} s, "
            f"staleness at most {stalest}"
        )
    waited, went_on = (steps[-1].ended_s for steps in found.values())
    yield f"without waiting, it takes {went_on / waited:.0%} of the time"


def progress(steps: Sequence[Step]) -> Iterator[tuple[int, float]]:
    """Yield the mean reward of the latest steps, second by second."""
    by_second = {round(step.ended_s): latest(steps[: number + 1]) for number, step in enumerate(steps)}
    yield from by_second.items()


def main(words: Sequence[str] | None = None) -> int:
    given = options_of(words)
    try:
        found = both(given)
    except (UserError, RolloutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(*summary(found), sep="\n")
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        curves = {name: list(progress(steps)) for name, steps in reversed(found.items())}
        title = f"Mean reward of {LATEST} steps of a tiny Llama, {BATCH * GROUP} rollouts per step, with a slow tool"
        draw([curves], title, given.output, "seconds")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sys.exit(main())
