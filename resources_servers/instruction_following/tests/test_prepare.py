"""Generated rows: the same for a seed, and solvable."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.instruction_following.app import InstructionFollowingServer
from resources_servers.instruction_following.constraints import constraint, constraint_ids
from resources_servers.instruction_following.drafting import PARTS
from resources_servers.instruction_following.families import IFBENCH
from resources_servers.instruction_following.lists import LISTS
from resources_servers.instruction_following.oracle import solve
from resources_servers.instruction_following.prepare import prepare, row
from resources_servers.instruction_following.solos import LANGUAGES, SOLOS
from resources_servers.instruction_following.wishes import ALONE, NAMES, TOGETHER, WORDS

GIVEN = {
    **{id_: {} for id_ in LISTS},
    "count:person_names": {"N": 9},
    "count:keywords_multiple": {f"keyword{number}": WORDS[number] for number in range(1, 6)},
    "count:words_japanese": {"N": 3},
    "ratio:overlap": {"reference_text": "The river carries every boat down to the sea.", "percentage": 40},
    "words:words_position": {"keyword": "sea"},
    "words:keywords_specific_position": {"keyword": "sea", "n": 2, "m": 3},
    "repeat:repeat_span": {"prompt_to_repeat": "Describe a walk along a river.", "n_start": 1, "n_end": 3},
    "repeat:repeat_change": {"prompt_to_repeat": "Describe a walk along a river."},
}
FOLDER = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return list(read_rows(prepare(tmp_path_factory.mktemp("rows") / "rows.jsonl", count=120, seed=5)))


async def test_every_row_rewards_its_oracle_only(rows):
    assert max(len(each["instruction_id_list"]) for each in rows) > 2
    server = make_server(InstructionFollowingServer)
    async with serving(server):
        for each in rows:
            for items, reward in ((solve(each), 1.0), ([""], 0.0)):
                async with rollout(server, **each) as attempt:
                    assert (await attempt.verify(reply(*items))).reward == reward, each


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again, other = (
        prepare(tmp_path / f"{name}.jsonl", count=10, seed=seed).read_bytes()
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first == again != other


def test_splits_have_no_row_in_common(tmp_path):
    prompts = {
        split: [each["prompt"] for each in read_rows(prepare(tmp_path / split, count=30, split=split))]
        for split in ("train", "validation")
    }
    assert [len(set(each)) for each in prompts.values()] == [30, 30]
    assert set(prompts["train"]).isdisjoint(prompts["validation"])


def test_rows_without_ifbench_have_none_of_its_constraints(tmp_path):
    with_all, without = (
        {
            id_
            for each in read_rows(prepare(tmp_path / "rows", 60, ifbench=flag))
            for id_ in each["instruction_id_list"]
        }
        for flag in (True, False)
    )
    assert with_all & IFBENCH
    assert not without & IFBENCH


def test_prompt_has_no_gaps_or_placeholders(rows):
    for each in rows:
        assert each["responses_create_params"]["input"][0]["content"] == each["prompt"]
        assert "{" not in each["prompt"]
        assert "  " not in each["prompt"]
        assert len(set(each["instruction_id_list"])) == len(each["instruction_id_list"]) == len(each["kwargs"])


def test_every_constraint_has_a_solution():
    asked = {wish.id for wish in (*TOGETHER, *ALONE)}
    assert asked <= set(constraint_ids()) == set(PARTS) | set(SOLOS)
    assert set(constraint_ids()) - asked == {*GIVEN, "letters:letter_counting2"}
    assert set(LISTS) < set(GIVEN)


def test_constraints_outside_the_generator_can_be_solved():
    wrong = []
    for id_, arguments in GIVEN.items():
        (text,) = solve({"instruction_id_list": [id_], "kwargs": [arguments]})
        if not constraint(id_, arguments).holds_for(text):
            wrong.append(id_)
    assert wrong == []


def test_each_wish_can_be_solved_alone():
    wrong = []
    for wish in [*TOGETHER, *ALONE]:
        for seed in range(5):
            arguments = wish.draw(random.Random(seed), "Write a short text about a walk along a river.")
            (text,) = solve({"instruction_id_list": [wish.id], "kwargs": [arguments]})
            if not constraint(wish.id, arguments).holds_for(text):
                wrong.append((wish.id, arguments, text))
    assert wrong == []


def test_each_language_has_a_text():
    wrong = []
    for language in LANGUAGES:
        task = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": language}]}
        if not solve(task):
            wrong.append(language)
    assert wrong == []


def test_requested_languages_have_a_text():
    assert NAMES.keys() <= LANGUAGES.keys()


def test_contradicting_constraints_raise_data_error():
    task = {
        "id": 7,
        "instruction_id_list": ["change_case:english_capital", "change_case:english_lowercase"],
        "kwargs": [{}, {}],
    }
    with pytest.raises(DataError, match="row 7: no text found that follows all of change_case:english_capital"):
        solve(task)


def test_row_combines_only_different_kinds():

    kinds = {wish.id: wish.kind for wish in TOGETHER}
    for seed in range(200):
        ids = row(random.Random(seed), seed)["instruction_id_list"]
        named = [kinds[id_] for id_ in ids if len(ids) > 1]
        assert len(set(named)) == len(named)


def test_command_of_the_readme_works(tmp_path):
    command = [sys.executable, str(FOLDER / "prepare.py"), "--count", "7", "--seed", "1", "--output", "rows.jsonl"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 7
