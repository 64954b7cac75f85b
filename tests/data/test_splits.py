"""The train and validation rows of a generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

import pytest

from nemo_gym import DataError
from nemo_gym.data.splits import Split, split_rows
from nemo_gym.jsonl import JsonObject


def sums(seed: int, highest: int = 10**6) -> Iterator[JsonObject]:
    draw = random.Random(seed)
    while True:
        a, b = draw.randint(0, highest), draw.randint(0, highest)
        yield {"question": f"{a} + {b} ✓ \ud800", "answer": a + b}


def test_splits_of_any_seeds_share_no_row() -> None:
    questions = [
        {row["question"] for row in split_rows(sums(seed, highest=40), split, size)}
        for split, seed, size in (("train", 0, 600), ("train", 1, 900), ("validation", 2, 90), ("validation", 3, 60))
    ]
    assert [len(each) for each in questions] == [600, 900, 90, 60]
    assert (questions[0] | questions[1]) & (questions[2] | questions[3]) == set()


def test_same_seed_gives_same_rows() -> None:
    first, again = (list(split_rows(sums(7), "train", 50)) for _ in range(2))
    assert first == again
    assert list(split_rows(sums(7), "train", 20)) == first[:20]


def test_one_row_in_eleven_is_for_validation() -> None:
    drawn = list(islice(sums(5), 5000))
    (found,) = ({row["question"] for row in split_rows(drawn, "train", size)} for size in [4400])
    others = [row for row in drawn if row["question"] not in found]
    assert 300 < sum(1 for _ in split_rows(others, "validation", 400)) <= 400


def test_key_chooses_what_makes_rows_equal() -> None:
    numbered = ({"id": number, "question": number // 5} for number in count())
    rows = list(split_rows(numbered, "train", 15, key=lambda row: row["question"]))
    assert len({row["question"] for row in rows}) == 15


def test_order_of_keys_does_not_matter() -> None:
    rows = [{"a": number, "b": 0} for number in range(40)]
    turned = [{"b": 0, "a": number} for number in range(40)]
    assert len(list(split_rows([*rows, *turned], "train", 30))) == 30
    with pytest.raises(DataError, match="rows of split 'train' are asked for"):
        list(split_rows([*rows, *turned], "train", 41))


@pytest.mark.parametrize("rows", [sums(0, highest=3), list(islice(sums(0, highest=3), 500))])
def test_exhausted_generator_is_reported_with_count(rows: Iterator[JsonObject]) -> None:
    with pytest.raises(DataError) as caught:
        list(split_rows(rows, "train", 100))
    assert str(caught.value) == (
        "count: 100 rows of split 'train' are asked for, but only 15 distinct rows of it exist. Ask for fewer rows, "
        "or let the generator vary more."
    )


@pytest.mark.parametrize("split", ["validation", None])
def test_count_below_one_is_rejected(split: Split | None) -> None:
    with pytest.raises(DataError, match="count: must be at least 1, found 0"):
        split_rows(sums(0), split, 0)


def test_without_split_the_first_rows_are_kept() -> None:
    assert list(split_rows(sums(0, highest=1), None, 9)) == list(islice(sums(0, highest=1), 9))
