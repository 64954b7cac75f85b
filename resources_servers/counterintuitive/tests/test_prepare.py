"""Generated rows: confirmed by a second implementation, distinct, and the same for a seed."""

import json
import random
import re
from collections import Counter
from itertools import islice

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from resources_servers.counterintuitive.grading import matches
from resources_servers.counterintuitive.kinds import KINDS
from resources_servers.counterintuitive.prepare import generated_rows, prepare
from resources_servers.counterintuitive.tests.solver import solution

pytestmark = pytest.mark.slow

ROWS_PER_KIND = 600


def drawn(kind, control_share, count=ROWS_PER_KIND):
    return list(islice(generated_rows(random.Random(f"a test of {kind}"), [kind], control_share), count))


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return list(read_rows(prepare(tmp_path_factory.mktemp("rows") / "train.jsonl", count=1000, split="train")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("control_share", [0.0, 1.0])
def test_second_implementation_agrees(kind, control_share):
    rows = drawn(kind, control_share)
    assert {row["scenario"] for row in rows} == {scenario.__name__ for scenario in KINDS[kind]}
    wrong = [
        (row["scenario"], row["expected_answer"], row["habitual_answer"])
        for row in rows
        if (solution(row), solution(row, usual=True)) != (row["expected_answer"], row["habitual_answer"])
    ]
    assert wrong == []


def test_only_controls_expect_the_habitual_answer(train):
    for row in train:
        assert matches(row["form"], row["expected_answer"], row["habitual_answer"]) == (row["subset"] == "control")
        assert matches(row["form"], row["habitual_answer"], row["expected_answer"]) == (row["subset"] == "control")


def test_constant_answers_earn_little(train):
    answers = Counter(row["expected_answer"] for row in train)
    assert answers.most_common(1)[0][1] < len(train) / 20


def prompts(row):
    return [message["content"] for message in row["responses_create_params"]["input"]]


def first_price(row):
    *earlier, question = prompts(row)
    return str(int(re.search(r"costs (\d+) euros", earlier[0])[1]) * int(re.search(r"euros do (\d+)", question)[1]))


def last_of_named_person(row):
    name = re.search(r"Only (\w+) may change it", prompts(row)[0])[1]
    return [said[1] for text in prompts(row) if (said := re.match(rf"{name}: Please set it to (\d+)", text))][-1]


@pytest.mark.parametrize(
    ("kind", "scenario", "guess", "highest"),
    [
        ("corrections", "price", first_price, 0.45),
        ("corrections", "authority", last_of_named_person, 0.6),
        ("corrections", "rule", None, 0.22),
        ("redefined_operators", "comparison", None, 0.2),
    ],
)
def test_blind_guesses_earn_little(kind, scenario, guess, highest):
    rows = [row for row in drawn(kind, 0.0, 1200) if row["scenario"] == scenario]
    answers = Counter(row["expected_answer"] for row in rows if guess or row["form"] == "number")
    right = sum(guess(row) == row["expected_answer"] for row in rows) if guess else answers.most_common(1)[0][1]
    assert right / answers.total() < highest


def test_kinds_and_controls_have_their_shares(train):
    shares = Counter(row["subset"] for row in train)
    assert shares.keys() == {*KINDS, "control"}
    assert all(0.08 < shares[subset] / len(train) < 0.25 for subset in shares)


def test_controls_cover_every_scenario(train):
    scenarios = {scenario.__name__ for each in KINDS.values() for scenario in each}
    assert {row["scenario"] for row in train if row["subset"] == "control"} == scenarios
    assert len(scenarios) == sum(map(len, KINDS.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_thousands_of_prompts(kind):
    rows = drawn(kind, 0.0, 4000)
    assert len({json.dumps(row["responses_create_params"]) for row in rows}) > 3900


def test_seed_decides_the_rows(tmp_path):
    first, again, other = (prepare(tmp_path / f"{n}.jsonl", 50, seed).read_bytes() for n, seed in enumerate((1, 1, 2)))
    assert first == again
    assert not {*first.splitlines()} & {*other.splitlines()}


def test_kinds_can_be_selected(tmp_path):
    rows = read_rows(prepare(tmp_path / "rows.jsonl", 20, control_share=0, subset=["priority"]))
    assert {row["subset"] for row in rows} == {"priority"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"control_share": 1.5}, "control_share: 1.5 is not between"),
        ({"subset": ["prio"]}, "subset: 'prio' does not exist. The subsets are: redefined_operators"),
    ],
)
def test_invalid_argument_writes_nothing(tmp_path, arguments, message):
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "rows.jsonl", **arguments)
    assert list(tmp_path.iterdir()) == []
