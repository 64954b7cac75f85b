"""Generated rows are solvable and depend only on the seed."""

from pathlib import Path

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.example_multi_step.app import MultiStepServer, synonym_value
from resources_servers.example_multi_step.oracle import solve
from resources_servers.example_multi_step.prepare import INSTRUCTION, SYNONYMS, prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


async def test_generated_rows_reward_the_oracle_but_not_silence(tmp_path):
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


def test_generated_rows_have_the_examples_format(tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 20))]
    assert {row["responses_create_params"]["input"][0]["content"] for row in rows} == {INSTRUCTION}
    assert {tuple(row) for row in rows} == {tuple(EXAMPLES[0])}


def test_words_of_a_row_have_different_values():
    wrong = [
        (word, synonyms, found)
        for word, synonyms in SYNONYMS.items()
        if (found := len({synonym_value(each) for each in (word, *synonyms)})) != 1 + len(synonyms)
    ]
    assert wrong == []


def test_rows_depend_only_on_the_seed(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, ("1", "1", "2"), strict=True):
        run_prepare(prepare, ["--output", str(path), "--count", "9", "--seed", seed])
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other
    assert len(first.splitlines()) == 9
