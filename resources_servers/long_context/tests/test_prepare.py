"""Rows are true: another program that reads the archives finds the expected answers."""

import re
from collections import Counter

import pytest

from nemo_gym import DataError, run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.long_context.prepare import CHARACTERS_PER_TOKEN, KINDS, TOKENS, prepare
from resources_servers.long_context.tests.reader import PASSAGE, STATING, answer, sources, statements, values


def made(folder, count, **arguments):
    return list(read_rows(prepare(folder / "rows.jsonl", count, **arguments)))


def prompt_of(row):
    (message,) = row["responses_create_params"]["input"]
    return message["content"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Thirty rows of each kind."""
    return made(tmp_path_factory.mktemp("rows"), 300, lengths=["4k", "4k", "16k"])


def test_reading_the_archive_gives_the_answer(rows):
    found = [answer(row["subset"], prompt_of(row), row["question"]) for row in rows]
    assert found == [row["expected_answer"] for row in rows]


def test_cited_passages_hold_the_values(rows):
    cited = [row for row in rows if row["sources"] is not None]
    assert {row["subset"] for row in cited} == {"citations"}
    assert [sorted(row["sources"]) for row in cited] == [sources(prompt_of(row), row["question"]) for row in cited]


def test_distractors_are_in_the_archive_and_wrong(rows):
    for row in rows:
        assert row["expected_answer"] not in row["distractors"], row["question"]
        assert all(each in prompt_of(row) for each in row["distractors"]), row["question"]
    assert {row["subset"] for row in rows if row["distractors"]} == {
        "one_needle", "similar_keys", "variable_chain", "nth_answer", "relevance"
    }  # fmt: skip


def test_kinds_and_lengths_are_equally_frequent(rows):
    assert Counter(row["subset"] for row in rows) == dict.fromkeys(KINDS, 30)
    assert Counter(row["length_bucket"] for row in rows) == {"4k": 200, "16k": 100}


def test_prompts_almost_fill_their_length(rows, tmp_path):
    longer = made(tmp_path, 9, lengths=[*TOKENS])
    for row in [*rows, *longer]:
        share = len(prompt_of(row)) / CHARACTERS_PER_TOKEN / TOKENS[row["length_bucket"]]
        assert 0.9 < share < 1.02, row["question"]
        assert row["approximate_tokens"] == round(share * TOKENS[row["length_bucket"]])


def test_depth_is_the_place_of_the_fact(rows):
    for row in rows:
        if row["subset"] in STATING:
            prompt = prompt_of(row)
            passage = STATING[row["subset"]](prompt, row["question"]).passage
            before = prompt.index(f"[{passage}]") / len(prompt)
            assert before - 0.05 < row["depth"] < before + 0.1, row["question"]
        else:
            assert row["depth"] is None


def test_depths_cover_the_whole_archive(rows):
    deep = [row["depth"] for row in rows if row["depth"] is not None]
    assert set(Counter(int(depth * 5) for depth in deep)) == {0, 1, 2, 3, 4}


def test_withdrawn_passages_do_not_hold_the_fact(rows):
    for row in rows:
        if row["subset"] in {"one_needle", "many_needles"}:
            assert not any(each.is_withdrawn for (each,) in values(prompt_of(row), row["question"]))


def test_latest_version_can_be_withdrawn(rows):
    asked = [row for row in rows if row["subset"] == "relevance" and "withdrawn" in row["question"]]
    assert asked
    for row in asked:
        (versions,) = values(prompt_of(row), row["question"])
        assert max(versions, key=lambda each: each.day).is_withdrawn


def test_latest_version_wins_only_by_date(rows):
    asked = [row for row in rows if row["subset"] == "relevance"]
    by_date = [
        row for row in asked if "withdrawn" in row["question"] or "regardless of its revision" in row["question"]
    ]
    assert 0 < len(by_date) < len(asked)
    for row in asked:
        (versions,) = values(prompt_of(row), row["question"])
        latest = max((each for each in versions if not each.is_withdrawn), key=lambda each: each.day)
        assert (latest.fields["value"] == row["expected_answer"]) == (row in by_date), row["question"]


def test_splits_share_no_question_at_any_length(tmp_path):
    lengths = ["4k", "8k", "16k"]
    train, validation = (
        [row["question"] for row in made(tmp_path, count, lengths=lengths, subset=["count"], split=split)]
        for split, count in (("train", 300), ("validation", 60))
    )
    assert len({*train}) == 300
    assert not {*train} & {*validation}


def test_sentences_of_needles_are_common_ones(rows):
    # For each kind of fact, the archive has many more statements than the question needs.
    kinds = Counter(each.kind for row in rows[:20] for each in statements(prompt_of(row), "in"))
    assert kinds["reading"] > 300


def test_million_token_archive_has_distinct_ids(tmp_path):
    (row,) = made(tmp_path, 1, lengths=["1m"], subset=["relevance"])
    ids = [passage[0] for passage in PASSAGE.findall(prompt_of(row))]
    assert len(ids) == len(set(ids)) == prompt_of(row).count("\n[P") > 4_000
    assert answer("relevance", prompt_of(row), row["question"]) == row["expected_answer"]


def test_same_seed_makes_the_same_rows(tmp_path):
    assert made(tmp_path, 20) == made(tmp_path, 20)
    assert made(tmp_path, 20) != made(tmp_path, 20, seed=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": ["4k", "5k"]}, r"lengths: '5k' does not exist\. Choose from: 4k, 8k, .*1m\."),
        ({"subset": ["two_needles"]}, "subset: 'two_needles' does not exist"),
        ({"lengths": "4k"}, r"lengths: '4k' is not a list"),
        ({"lengths": []}, "lengths: the list is empty"),
    ],
)
def test_unknown_lengths_and_kinds_are_rejected(tmp_path, arguments, message):
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "rows.jsonl", 1, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_command_line_selects_kinds_and_lengths(tmp_path):
    output = tmp_path / "rows.jsonl"
    words = ["--count", "2", "--lengths", "8k", "--subset", "count", "--subset", "citations", "--output", str(output)]
    run_prepare(prepare, words)
    found = [(row["subset"], row["length_bucket"]) for row in read_rows(output)]
    assert found == [("count", "8k"), ("citations", "8k")]
    assert re.search(r"Sources: P10000, P20000", prompt_of(list(read_rows(output))[1]))
