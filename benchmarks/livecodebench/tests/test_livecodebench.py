"""LiveCodeBench: its preparation from fetched files, and the rewards of its rows."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import zlib
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.livecodebench.prepare import REPOSITORY, prepare
from nemo_gym import DataError, UsageError
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, serving
from resources_servers.code_gen.app import CodeGenServer
from tests.data.code_answers import fenced, other_rewards, reference, reward_of

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
STARTER = "class Solution:\n    def double(self, n: int) -> int:\n        "

on_the_shared_server = pytest.mark.asyncio(loop_scope="module")


def packed(tests) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def cases(kind: str, *pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"input": given, "output": printed, "testtype": kind} for given, printed in pairs]


def problem(number: int, date: str, difficulty: str = "easy", **more: str) -> dict[str, str]:
    """Return a stdin problem in the shape of the data, with one public and two private tests."""
    return {
        "question_title": f"Problem {number}",
        "question_content": "Print twice the number.",
        "platform": "atcoder",
        "question_id": f"abc{number}_a",
        "contest_id": f"abc{number}",
        "contest_date": f"{date}T00:00:00",
        "starter_code": "",
        "difficulty": difficulty,
        "public_test_cases": json.dumps(cases("stdin", ("2\n", "4\n"))),
        "private_test_cases": packed(cases("stdin", ("21\n", "42\n"), ("-1\n", "-2"))),
        "metadata": "{}",
        **more,
    }


FUNCTION_PROBLEM = problem(
    9,
    "2024-12-01",
    "hard",
    platform="leetcode",
    starter_code=STARTER,
    public_test_cases=json.dumps(cases("functional", ("2", "4"))),
    private_test_cases=json.dumps(cases("functional", ("21", "42"))),
    metadata=json.dumps({"func_name": "double"}),
)
RELEASE = {
    "test.jsonl": [problem(1, "2023-05-07")],
    "test2.jsonl": [problem(2, "2024-08-01"), problem(3, "2024-07-31")],
    "test3.jsonl": [FUNCTION_PROBLEM, problem(4, "2025-01-01", "medium")],
}


@pytest.fixture
def hub(fake_hub):
    for name, problems in RELEASE.items():
        serve(fake_hub, name, *problems)
    return fake_hub


def serve(hub, name: str, *problems) -> None:
    hub.huggingface(REPOSITORY, name, "\n".join(map(json.dumps, problems)).encode())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    started = make_server(CodeGenServer, num_processes=3)
    async with serving(started):
        yield started


def memorized(row) -> str:
    """Return a program that knows the result of the first test only."""
    tests = row["verifier_metadata"]["unit_tests"]
    if "fn_name" not in tests:
        return f"print({tests['outputs'][0]!r})"
    return f"class Solution:\n    def {tests['fn_name']}(self, *_): return {json.loads(tests['outputs'][0])!r}"


RIGHT = {
    "right": lambda row: fenced(reference(row)),
}
WRONG = {
    "hedged": lambda row: f"{fenced(reference(row))}\n\nOr:\n\n{fenced('print(0)')}",
    "echoed": lambda row: fenced(row["question"]),
    "memorized": lambda row: fenced(memorized(row)),
    "without block": reference,
    "leaves early": lambda row: fenced(f"import os\nos._exit(0)\n{reference(row)}"),
    "empty": lambda _: "",
}


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_right_programs_earn_one(server):
    assert await other_rewards(server, EXAMPLES, RIGHT, 1.0) == []


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_conventional_wrong_answers_earn_nothing(server):
    assert await other_rewards(server, EXAMPLES[1:3], WRONG, 0.0) == []


def test_prompt_shows_the_problem_and_the_format():
    prompt = load_prompt_config(FOLDER / "prompts" / "default.yaml")
    for row in EXAMPLES:
        (message,) = apply_prompt_to_row(row, prompt)["responses_create_params"]["input"]
        assert row["question"] in message["content"]
        assert message["content"].endswith(row["answer_format"])


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_prepared_rows_use_all_hidden_tests(server, hub, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", version_tag="release_v3")))
    stdin, function = rows[0], next(row for row in rows if row["platform"] == "leetcode")
    public = "n = int(input())\nprint(4 if n == 2 else 0)"
    star = "print(reduce(add, repeat(int(input()), 2)))"
    method, knows = f"{STARTER}return 2 * n", f"{STARTER}return 4"
    tried = [(stdin, "print(2 * int(input()))"), (stdin, star), (stdin, public), (function, method), (function, knows)]
    rewards = await asyncio.gather(*(reward_of(server, row, fenced(code)) for row, code in tried))
    assert rewards == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert "class Solution" in function["answer_format"]
    assert "standard input" in stdin["answer_format"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 9, 4]),
        ({"start": "2024-08-01"}, [2, 9, 4]),
        ({"start": "2024-08-01", "end": "2024-12-01"}, [2, 9]),
        ({"end": "2024-07-31"}, [1, 3]),
        ({"difficulty": "medium"}, [4]),
        ({"version_tag": "release_v2"}, [1, 2, 3]),
        ({"version_tag": "v2"}, [2, 3]),
        ({"version_tag": "v2_v3"}, [2, 3, 9, 4]),
    ],
)
def test_window_and_version_choose_the_problems(hub, tmp_path, options, expected):
    path = prepare(tmp_path / "rows.jsonl", **{"version_tag": "release_v3", **options})
    assert [row["question_id"] for row in read_rows(path)] == [f"abc{number}_a" for number in expected]


def test_tests_are_kept_once_in_files(hub, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", version_tag="release_v3")))
    files = {row["verifier_metadata"]["unit_tests"]["file"] for row in rows}
    assert sorted(map(str, (tmp_path / "tests").iterdir())) == sorted(files)
    assert len(files) == 2
    assert "42" not in (tmp_path / "rows.jsonl").read_text()


class Harmful:
    """A pickle that runs code when it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("harmed"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Harmful()), r"column 'private_test_cases': UnpicklingError: the pickle asks for pathlib\."),
        (pickle.dumps([1]), "holds list instead of text"),
        (pickle.dumps("[1]"), "column 'private_test_cases': Input should be"),
        (b"\x80\x04", "column 'private_test_cases': EOFError"),
        (b"junk", "column 'private_test_cases': UnpicklingError"),
    ],
)
def test_only_text_is_unpickled(fake_hub, tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    private = base64.b64encode(zlib.compress(content)).decode()
    serve(fake_hub, "test.jsonl", problem(1, "2024-08-01", private_test_cases=private))
    with pytest.raises(DataError, match=rf"test\.jsonl:1 \(abc1_a\): .*{message}"):
        prepare(tmp_path / "rows.jsonl", version_tag="v1")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"private_test_cases": "junk!"}, "column 'private_test_cases': Error"),
        ({"private_test_cases": "anVuaw=="}, "column 'private_test_cases': error"),
        ({"private_test_cases": packed([])[:-8]}, "column 'private_test_cases'"),
        ({"public_test_cases": "{}"}, "column 'public_test_cases'"),
        ({"metadata": '{"func_name": "double"}'}, "not all tests are 'functional'"),
        ({"metadata": "junk"}, "column 'metadata'"),
        ({"contest_date": "soon"}, "column 'contest_date': 'soon' is not a date"),
        ({"difficulty": None}, "column 'difficulty'"),
    ],
)
def test_unknown_data_is_reported_or_skipped(fake_hub, tmp_path, change, message):
    serve(fake_hub, "test.jsonl", problem(1, "2024-08-01") | change)
    with pytest.raises(DataError, match=rf"test\.jsonl:? ?.*1.*{message}"):
        prepare(tmp_path / "rows.jsonl", version_tag="v1")
    assert not (tmp_path / "rows.jsonl").exists()
    serve(fake_hub, "test2.jsonl", problem(1, "2024-08-01") | change, problem(2, "2024-08-01"))
    rows = read_rows(prepare(tmp_path / "rows.jsonl", version_tag="v2", skip_bad=True))
    assert [row["question_id"] for row in rows] == ["abc2_a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version_tag": "v7"}, "version_tag: 'v7' is not known"),
        ({"version_tag": "v3_v2"}, "'v3_v2' is not known"),
        ({"start": "August"}, "start: 'August' is not a date"),
        ({"start": "2030-01-01"}, "does not have a problem from 2030-01-01"),
    ],
)
def test_unusable_window_is_reported(hub, tmp_path, options, message):
    with pytest.raises((UsageError, DataError), match=message):
        prepare(tmp_path / "rows.jsonl", **{"version_tag": "v1", **options})
    assert not (tmp_path / "rows.jsonl").exists()


def test_empty_window_keeps_the_prepared_file(hub, tmp_path):
    path = prepare(tmp_path / "rows.jsonl", version_tag="v1")
    rows = path.read_bytes()
    with pytest.raises(DataError, match="does not have a problem"):
        prepare(path, version_tag="v1", start="2030-01-01")
    assert path.read_bytes() == rows
