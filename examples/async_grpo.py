"""Train a tiny Llama twice, with and without waiting for rollouts: `python examples/async_grpo.py`.

The environment has a slow tool. The first training samples a batch, waits for its last rollout, and takes a step. The
second one never waits: rollouts go on while it takes steps, with a policy that may be some versions old, and clipped
ratios of new to captured probabilities correct the difference. Both train until the same reward.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from counter_servers import counter_servers, endpoint, rows
from policy_server import PolicyServer
from table.curve import draw
from tiny_llama import make_model, make_tokenizer
from torch.nn.utils.rnn import pad_sequence

from nemo_gym.errors import RolloutError, UserError
from nemo_gym.training import Group, TrainingClient, Trajectory

ROOT = Path(__file__).parent / "slow_tools"
CONFIG = "resources_servers/slow_counter/configs/slow_counter.yaml"
GROUP = 16
"""Rollouts of each task."""
BATCH = len(rows())
"""Groups of each step."""
MAX_STALENESS = 4
IN_FLIGHT = BATCH * GROUP
"""Of rollouts. More of them are older when they are trained on, and teach less."""
CLIP = 0.2
ENTROPY = 0.01
LEARNING_RATE = 3e-3
LATEST = 10
"""The steps whose mean reward counts, because that of a single one varies."""
PATIENCE_S = 120.0
Weights = dict[str, torch.Tensor]


class Step(NamedTuple):
    """A step of a training."""

    reward: float
    """The mean of its batch."""
    staleness: int
    """That of the stalest rollout that is trained on, in versions of the policy."""
    ended_s: float
    """Since the training began."""


def serve(connection: Connection, seed: int) -> None:
    """Be the engine: serve a policy, and load the weights that arrive, until the connection ends."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed)
    with PolicyServer(model, tokenizer) as server:
        connection.send(server.url)
        while True:
            try:
                weights: Weights = connection.recv()
            except EOFError:
                return
            server.load(weights)
            connection.send(None)


class Engine:
    """An engine in its own process, as vLLM has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.url = str(self._answer())

    def push(self, weights: Weights) -> None:
        """Replace the weights. Later tokens are sampled with the new ones."""
        self._connection.send(weights)
        self._answer()

    def _answer(self) -> object:
        if not self._connection.poll(PATIENCE_S):
            raise UserError(f"the policy's process has not answered within {PATIENCE_S:g} s")
        try:
            return self._connection.recv()
        except EOFError:
            raise UserError("the policy's process has ended; its error is above") from None


@contextmanager
def engine(seed: int) -> Iterator[Engine]:
    """Start an engine, and stop it at the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=serve, args=(its, seed), daemon=True)
    process.start()
    its.close()
    try:
        yield Engine(ours)
    finally:
        ours.close()
        process.join(PATIENCE_S)


class Learner:
    """The policy that is trained."""

    def __init__(self, seed: int) -> None:
        self._model = make_model(make_tokenizer(), seed)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)

    @property
    def weights(self) -> Weights:
        return {name: weight.detach() for name, weight in self._model.state_dict().items()}

    def step(self, groups: Sequence[Group]) -> None:
        """Take one step of GRPO with clipped ratios. Masked rollouts are left out."""
        trained = [sequence for group in groups for sequence in advantages(group)]
        if not trained:
            return
        sequences, gains = zip(*trained, strict=True)
        ids = pad_sequence([torch.tensor(each.prompt_ids + each.completion_ids) for each in sequences]).T
        mask = _placed(sequences, [each.mask for each in sequences])
        # The padding is on the right, so the tokens before it do not attend to it.
        log_probs = torch.log_softmax(self._model(input_ids=ids[:, :-1]).logits.float(), dim=-1)
        own = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
        ratio = (own - _placed(sequences, [each.logprobs for each in sequences])).exp()
        gain = torch.tensor(gains)[:, None]
        surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        loss = -((surrogate + ENTROPY * entropy) * mask).sum() / mask.sum()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def advantages(group: Group) -> Iterator[tuple[Trajectory, float]]:
    """Yield the sequences of a group that are trained on, each with its advantage over the others."""
    if group.std:
        mean = statistics.fmean(group.rewards)
        for rollout in group.rollouts:
            if rollout.reward is not None and not (sequence := rollout.trajectory()).is_masked:
                yield sequence, (rollout.reward - mean) / group.std


def _placed(sequences: Sequence[Trajectory], values: Sequence[Sequence[float]]) -> torch.Tensor:
    """Return values of completion tokens at the places that predict them, with 0 elsewhere."""
    pairs = zip(sequences, values, strict=True)
    return pad_sequence([torch.tensor([0.0] * (len(each.prompt_ids) - 1) + [*found]) for each, found in pairs]).T


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
    learner, steps = Learner(given.seed), list[Step]()
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
    with engine(given.seed) as served, counter_servers(endpoint(served.url), CONFIG) as head:
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
        draw(curves, title, given.output, "seconds")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    sys.exit(main())
