"""Rows that are made: always the same for a seed, and each of them can be solved."""

from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.example_multi_step.app import MultiStepServer, synonym_value
from resources_servers.example_multi_step.oracle import solve
from resources_servers.example_multi_step.prepare import INSTRUCTION, SYNONYMS, main, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


async def test_every_made_row_rewards_the_oracle_and_no_empty_answer(tmp_path):
    server = make_server(MultiStepServer)
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 60)))
    assert {len(row["expected_synonyms"]) for row in rows} == {2, 3, 4, 5}
    for row in rows:
        async with rollout(server, **row) as attempt:
            for item in solve(row)[:-1]:
                await attempt.send(item)
            graded = await attempt.verify()
            assert (graded.reward, graded.original_term_minefield_hit) == (1.0, False)
            assert (await attempt.verify(reply(""))).reward == 0.0


def test_a_made_row_is_written_as_the_examples_are(tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 20))]
    assert {row["responses_create_params"]["input"][0]["content"] for row in rows} == {INSTRUCTION}
    assert {tuple(row) for row in rows} == {tuple(EXAMPLES[0])}


@pytest.mark.parametrize(("word", "synonyms"), SYNONYMS.items())
def test_no_two_words_of_a_row_have_the_same_value(word, synonyms):
    # Else a wrong order could not be told from the right one, or the trap not from an answer.
    assert len({synonym_value(each) for each in (word, *synonyms)}) == 1 + len(synonyms)


def test_the_same_seed_makes_the_same_rows_and_another_one_others(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        assert main(["--output", str(path), "--count", "9", "--seed", seed]) == 0
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
