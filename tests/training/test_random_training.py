"""A training with random updates, aborts, failures, cancellations and endless tools: nothing is lost or too old."""

from __future__ import annotations

import random
from itertools import count

import pytest

from nemo_gym.schemas.row import Row
from nemo_gym.training import TrainingClient
from tests.endpoint.server import CONTINUED
from tests.training.test_client import row, started

pytestmark = pytest.mark.slow

BOUND = 2


@pytest.fixture(scope="module")
def run(shared_workplace, endpoint):
    """The head server of a run whose engine aborts each answer after every five tokens."""
    model = "++policy_model.responses_api_models.vllm_model"
    words = f"{model}.uses_completions_api=true", f"{model}.partial_rollouts=continue"
    command = started(shared_workplace, endpoint, *words, model="aborts-after:5")
    yield command.head
    command.end()


def rows(rng, read):
    """Yield endless rows. Some rollouts are slow, some never end, and some fail."""
    for number in count():
        pause, fails = rng.choice([0.0, 0.0, 0.1]), rng.choice([-1, -1, -1, 0, 1])
        stuck = rng.choice([-1, -1, -1, -1, 0])
        read.append(row("Go on.", number=number, pause_s=pause, fails_at=fails, stuck_at=stuck))
        yield read[-1]


def check(client, group):
    """Check the tokens, the versions and the age of each rollout."""
    for each in group.rollouts:
        if each.failure is not None:
            assert (each.reward, each.trajectory().is_masked) == (None, True)
            continue
        sequence = each.trajectory()
        assert "".join(map(chr, sequence.completion_ids)) == CONTINUED
        assert sum(span["tokens"] for span in sequence.turns[0].spans) == len(CONTINUED)
        known = range(each.policy_version, each.policy_version_at_end + 1)
        # A later part of an answer is never older than an earlier one.
        assert set(sequence.versions) <= set(known)
        assert sequence.versions == sorted(sequence.versions)
        assert client.staleness(each) <= BOUND or Row(each.result).is_masked


@pytest.mark.parametrize("seed", range(3))
async def test_random_training_loses_nothing_and_knows_each_version(run, seed):
    rng, read, judged, taken = random.Random(seed), [], {}, []

    def keep(group):
        assert group.row["number"] not in judged
        judged[group.row["number"]] = rng.random() < 0.6
        return judged[group.row["number"]]

    source = rows(rng, read)
    async with TrainingClient(run, in_flight=8, max_staleness=BOUND, attempts=1) as client:
        for _ in range(5):
            async for group in client.rollouts(source, 2, wanted=4, keep=keep, most=10.0, group_timeout_s=1.0):
                check(client, group)
                taken.append(group.row["number"])
                if rng.random() < 0.4:
                    client.set_policy()
                if rng.random() < 0.3:
                    client.cancel(rng.choice(read))
        state = client.state_dict()
    waiting = [each["row"]["number"] for each in state["carried"]] + [each["number"] for each in state["owed"]]
    assert len(taken) == len(set(taken)) == 20
    # Each row that was read was trained on, was dropped, or waits for the next step.
    dropped = [number for number, is_kept in judged.items() if not is_kept]
    assert sorted([*taken, *dropped, *waiting]) == [each["number"] for each in read]
