"""AGIEval: its preparation from fetched files, and the rewards of its answers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.agieval.prepare import FILES, REPOSITORY, prepare
from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server
from resources_servers.mcqa.app import McqaServer
from tests.data.benchmark_answers import prompt_of, right_choices, wrong_choices, wrongly_graded
from tests.data.real_files import real_file

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
QUESTION = {
    "passage": "All cats purr.",
    "question": "Does Tom, a cat, purr?",
    "options": ["(A)Yes", "(B) No"],
    "label": "A",
    "other": None,
}


def serve(hub, name: str, *questions: dict[str, object]) -> None:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    hub.github(REPOSITORY, f"data/v1/{name}.jsonl", lines.encode())


@pytest.fixture
def agieval(fake_hub):
    """Serve the files with a known hash as they are, and the others with one question each."""
    for name, sha256 in FILES.items():
        if sha256 is None:
            serve(fake_hub, name, QUESTION)
        else:
            fake_hub.github(REPOSITORY, f"data/v1/{name}.jsonl", real_file("agieval", f"{name}.jsonl").read_bytes())
    return fake_hub


async def test_files_become_subsets_that_reward_their_letters(agieval, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "agieval.jsonl")))
    assert Counter(row["subset"] for row in rows) == {
        "aqua-rat": 254, "logiqa-en": 1, "lsat-ar": 1, "lsat-lr": 510, "lsat-rc": 1, "sat-en": 1, "sat-math": 220
    }  # fmt: skip
    small = next(row for row in rows if row["subset"] == "lsat-ar")
    assert small == {
        "question": "All cats purr.\n\nDoes Tom, a cat, purr?",
        "options_text": "A: Yes\nB: No",
        "options": [{"A": "Yes"}, {"B": "No"}],
        "expected_answer": "A",
        "grading_mode": "lenient_answer_colon_md",
        "metadata": {"dataset": "lsat-ar", "line": 1},
        "subset": "lsat-ar",
    }
    assert prompt_of(small, FOLDER).endswith("\n\nAll cats purr.\n\nDoes Tom, a cat, purr?\n\nA: Yes\nB: No")
    assert all(row.keys() == small.keys() for row in EXAMPLES)
    real = next(row for row in rows if row["subset"] == "sat-math")
    assert real["question"] == r"If $\frac{x-1}{3}=k$ and $k=3$, what is the value of $x ?$"
    assert (real["options_text"], real["expected_answer"]) == ("A: 2\nB: 4\nC: 9\nD: 10", "D")
    sample = rows[::100]
    assert (
        await wrongly_graded(make_server(McqaServer), sample, right_choices, lambda row: wrong_choices(row, FOLDER))
        == []
    )


def test_changed_file_is_rejected(agieval, tmp_path):
    serve(agieval, "sat-math", QUESTION)
    with pytest.raises(DataError, match=r"sat-math\.jsonl: its SHA-256 is .* is pinned"):
        prepare(tmp_path / "agieval.jsonl")


def test_invalid_question_is_reported_or_skipped(agieval, tmp_path):
    serve(agieval, "sat-en", QUESTION, {**QUESTION, "label": "C"})
    with pytest.raises(DataError, match=r"sat-en\.jsonl:2: label: 'C' is not one of the options A, B"):
        prepare(tmp_path / "agieval.jsonl")
    assert not (tmp_path / "agieval.jsonl").exists()
    rows = read_rows(prepare(tmp_path / "agieval.jsonl", skip_bad=True))
    assert sum(row["subset"] == "sat-en" for row in rows) == 1


async def test_examples_reward_exactly_their_answers():
    server = make_server(McqaServer)
    assert await wrongly_graded(server, EXAMPLES, right_choices, lambda row: wrong_choices(row, FOLDER)) == []
