"""The two halves of a training that does not wait: an engine that samples in its own process, and GRPO with torch."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import torch
from policy_server import PolicyServer
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from nemo_gym.errors import UserError
from nemo_gym.training import Group, Trajectory

CLIP = 0.2
ENTROPY = 0.01
LEARNING_RATE = 3e-3
LARGEST_GRADIENT = 1.0
"""The norm."""
PATIENCE_S = 120.0
Weights = dict[str, torch.Tensor]
Policy = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def _serve(connection: Connection, make: Callable[[], Policy]) -> None:
    """Be the engine: serve a policy, and load the weights that arrive, until the connection ends."""
    with PolicyServer(*make()) as server:
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
def engine(make: Callable[[], Policy]) -> Iterator[Engine]:
    """Start an engine, and stop it at the end of the block. `make` is called in its process."""
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(its, make), daemon=True)
    process.start()
    its.close()
    try:
        yield Engine(ours)
    finally:
        ours.close()
        process.join(PATIENCE_S)


class Learner:
    """The policy that is trained."""

    def __init__(self, model: PreTrainedModel, learning_rate: float = LEARNING_RATE) -> None:
        self._model = model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)

    @property
    def weights(self) -> Weights:
        return {name: weight.detach() for name, weight in self._model.state_dict().items()}

    def step(self, groups: Sequence[Group]) -> float | None:
        """Take one step of GRPO with clipped ratios. Masked rollouts are left out.

        Return the mean distance of the log-probabilities from the captured ones, None if all groups are equal.
        """
        trained = [sequence for group in groups for sequence in advantages(group)]
        if not trained:
            return None
        sequences, gains = zip(*trained, strict=True)
        ids = pad_sequence([torch.tensor(each.prompt_ids + each.completion_ids) for each in sequences]).T
        mask = _placed(sequences, [each.mask for each in sequences])
        # The padding is on the right, so the tokens before it do not attend to it.
        log_probs = torch.log_softmax(self._model(input_ids=ids[:, :-1]).logits.float(), dim=-1)
        own = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
        change = own - _placed(sequences, [each.logprobs for each in sequences])
        ratio = change.exp()
        gain = torch.tensor(gains)[:, None]
        surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        loss = -((surrogate + ENTROPY * entropy) * mask).sum() / mask.sum()
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), LARGEST_GRADIENT)
        self._optimizer.step()
        return float((change.detach().abs() * mask).sum() / mask.sum())


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
