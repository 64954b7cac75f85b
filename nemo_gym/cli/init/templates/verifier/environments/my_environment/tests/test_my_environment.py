"""Tests of the reward and of the prepared rows."""

from pathlib import Path

import pytest

from environments.my_environment.oracle import solve
from environments.my_environment.prepare import prepare
from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.my_environment.app import BEST, WORST, MyEnvironmentServer

EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"
WORDS = ["Oslo", "Bern", "Lima", "Cairo"]

pytestmark = pytest.mark.asyncio


@pytest.fixture
def server():
    return make_server(MyEnvironmentServer)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Answer: Bern, Cairo, Lima, Oslo", 1.0),
        ("Answer: Oslo, Bern, Lima, Cairo\nNo.\nAnswer: Bern, Cairo, Lima, Oslo.", 1.0),
        ("Answer: Bern, Lima, Cairo, Oslo", 0.5),
        ("Answer: Bern, Cairo, Lima", 0.0),
        ("Answer: Bern, Cairo, Lima, Oslo, Oslo", 0.0),
        ("Bern, Cairo, Lima, Oslo", 0.0),
        ("<think>Answer: Bern, Cairo, Lima, Oslo</think>I do not know.", 0.0),
        ("", 0.0),
    ],
)
async def test_reward_is_share_of_words_in_place(server, answer, share):
    async with rollout(server, words=WORDS) as attempt:
        graded = await attempt.verify(reply(answer))
    assert graded.reward == pytest.approx(WORST + share * (BEST - WORST))


async def test_oracle_earns_all_on_prepared_rows(server, tmp_path):
    for row in [*read_rows(EXAMPLES), *read_rows(prepare(tmp_path / "rows.jsonl", count=20))]:
        async with rollout(server, **row) as attempt:
            assert (await attempt.verify(reply(*solve(row)))).reward == BEST


async def test_rows_depend_only_on_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other


async def test_splits_have_no_row_in_common(tmp_path):
    train, validation = (
        {tuple(row["words"]) for row in read_rows(prepare(tmp_path / split, count=50, split=split))}
        for split in ("train", "validation")
    )
    assert len(train) == len(validation) == 50
    assert not train & validation
