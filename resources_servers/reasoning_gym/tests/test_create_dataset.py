"""The published command line for rows of reasoning-gym: its choices of generators, and wrong ones."""

import pytest

from nemo_gym import DataError, UsageError, run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.reasoning_gym.prepare import prepare
from resources_servers.reasoning_gym.scoring import is_installed
from resources_servers.reasoning_gym.scripts.create_dataset import create_dataset

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'reasoning-gym' is not installed")

LOGIC = {
    "aiw", "circuit_logic", "knights_knaves", "propositional_logic", "self_reference", "syllogism", "zebra_puzzles",
}  # fmt: skip


def generators_of(path):
    return {row["metadata"]["source_dataset"] for row in read_rows(path)}


def test_several_tasks_share_the_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    run_prepare(create_dataset, ["--tasks", "leg_counting, chain_sum", "--size", "20", "--output", str(path)])
    assert generators_of(path) == {"leg_counting", "chain_sum"}
    assert len(list(read_rows(path))) == 20


@pytest.mark.slow
def test_config_applies_to_the_task(tmp_path):
    settings = '{"min_terms": 3, "max_terms": 3}'
    path = create_dataset(tmp_path / "rows.jsonl", task="chain_sum", config=settings, size=4)
    assert {row["metadata"]["num_terms"] for row in read_rows(path)} == {3}
    assert generators_of(path) == {"chain_sum"}


@pytest.mark.slow
def test_category_has_its_generators_only(tmp_path):
    drawn = generators_of(prepare(tmp_path / "rows.jsonl", category="logic", count=10))
    assert len(drawn) > 1
    assert drawn <= LOGIC


@pytest.mark.slow
@pytest.mark.parametrize("category", ["logik", "probability"])
def test_unknown_category_is_rejected_with_the_others(tmp_path, category):
    # The only generator of the second one accepts wrong answers.
    with pytest.raises(DataError, match=rf"category '{category}': .*Choose one of: algebra, .*, logic\."):
        prepare(tmp_path / "rows.jsonl", category=category, count=1)


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({}, "give one of --task, --tasks, --category, --all-tasks$"),
        ({"task": "maze", "all_tasks": True}, "not --task and --all-tasks"),
        ({"tasks": "maze,ab", "config": "{}"}, "--config: only allowed with argument --task"),
    ],
)
def test_wrong_choice_is_rejected(tmp_path, choice, problem):
    with pytest.raises(UsageError, match=problem):
        create_dataset(tmp_path / "rows.jsonl", **choice)


@pytest.mark.parametrize("config", ["{", "[1]"])
def test_invalid_config_is_rejected(tmp_path, config):
    with pytest.raises(DataError, match="--config: "):
        create_dataset(tmp_path / "rows.jsonl", task="maze", config=config)


def test_category_excludes_other_choices(tmp_path):
    with pytest.raises(UsageError, match="--category: not allowed with argument --generator"):
        prepare(tmp_path / "rows.jsonl", ["maze"], category="logic")
