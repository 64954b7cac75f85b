"""MBPP: its preparation from the fetched table, and the rewards of its rows."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytest_asyncio

from benchmarks.mbpp.prepare import SOURCE, prepare
from nemo_gym import DataError
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, serving
from resources_servers.code_gen.app import CodeGenServer
from tests.data.code_answers import fenced, other_rewards, reference

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
PROBLEMS = [
    {
        "source_file": "Benchmark Questions Verification V2.ipynb",
        "task_id": 2,
        "prompt": "Write a function to find the diagonal of a rectangle. ",
        "code": "import math\ndef helper(a): return a * a\n"
        "def diagonal(a, b):\n  return math.sqrt(helper(a) + helper(b))",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(diagonal(3, 4), 5, rel_tol=0.001)", "assert diagonal(0, 2) == 2.0"],
    },
    {
        "source_file": "Benchmark Questions Verification V2.ipynb",
        "task_id": 3,
        "prompt": "Write a python function to swap two values.",
        "code": "def swap(a, b):\n  return (b, a)",
        "test_imports": [],
        "test_list": ["assert swap(1, 2) == (2, 1)", "assert set(swap('a', 'b')) == set(('a', 'b'))"],
    },
]

on_the_shared_server = pytest.mark.asyncio(loop_scope="module")


def table(problems) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(problems), file)
    return file.getvalue()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server():
    started = make_server(CodeGenServer, num_processes=3)
    async with serving(started):
        yield started


RIGHT = {
    "right": lambda row: fenced(reference(row)),
    "with tests": lambda row: fenced(f"{reference(row)}\n{row['tests']}"),
}
WRONG = {
    "hedged": lambda row: f"{fenced(reference(row))}\n\nOr:\n\n{fenced('pass')}",
    "echoed": lambda row: fenced(row["tests"]),
    "first assert only": lambda row: fenced(first_result(row)),
    "without block": reference,
    "leaves early": lambda row: fenced(f"import os\nos._exit(0)\n{reference(row)}"),
    "empty": lambda _: "",
}


def first_result(row) -> str:
    """Return a function with the first right result for every call."""
    name = row["verifier_metadata"]["unit_tests"]["fn_name"]
    return (
        f"{reference(row)}\nright, results = {name}, []\n"
        f"def {name}(*given):\n    results.append(right(*given))\n    return results[0]"
    )


@pytest.fixture
def rows(fake_hub, tmp_path):
    """Return the rows of a small table from the hub."""
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, table(PROBLEMS))
    return list(read_rows(prepare(tmp_path / "mbpp.jsonl")))


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_right_functions_earn_one(server, rows):
    assert [row["verifier_metadata"]["unit_tests"]["fn_name"] for row in rows] == ["diagonal", "swap"]
    assert await other_rewards(server, [*rows, *EXAMPLES], RIGHT, 1.0) == []


@on_the_shared_server
@pytest.mark.needs_bubblewrap
async def test_conventional_wrong_answers_earn_nothing(server, rows):
    assert await other_rewards(server, rows, WRONG, 0.0) == []


def test_prompt_shows_the_tests():
    prompt = load_prompt_config(FOLDER / "prompts" / "default.yaml")
    for row in EXAMPLES:
        (message,) = apply_prompt_to_row(row, prompt)["responses_create_params"]["input"]
        assert row["question"] in message["content"]
        assert fenced(row["tests"]) in message["content"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_list": ["assert 1 == 1"]}, r"row 1 \(task 2\): the tests must call one function .* they call none"),
        ({"test_list": ["assert diagonal(helper(3), 4)"]}, r"they call \['helper', 'diagonal'\]"),
        ({"test_list": ["assert diagonal("]}, r"row 1 \(task 2\): '\(' was never closed"),
        ({"code": 5}, "row 1: column 'code'"),
    ],
)
def test_unknown_data_is_reported(fake_hub, tmp_path, change, message):
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, table([PROBLEMS[0] | change]))
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "mbpp.jsonl")
    assert not (tmp_path / "mbpp.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_list": ["assert True"]}, "row 1 (task 2): the tests must call one function"),
        ({"code": None}, "row 1: column 'code'"),
    ],
)
def test_bad_rows_are_skipped_and_named_on_request(fake_hub, tmp_path, caplog, change, message):
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, table([PROBLEMS[0] | change, PROBLEMS[1]]))
    rows = list(read_rows(prepare(tmp_path / "mbpp.jsonl", skip_bad=True)))
    assert [row["task_id"] for row in rows] == ["mbpp/3"]
    assert message in caplog.text
    assert "skipped 1 of 2 lines" in caplog.text


def test_missing_column_is_reported(fake_hub, tmp_path):
    old = {name: value for name, value in PROBLEMS[0].items() if name != "test_imports"}
    fake_hub.huggingface(SOURCE.repo, SOURCE.path, table([old]))
    with pytest.raises(DataError, match="column 'test_imports' is missing"):
        prepare(tmp_path / "mbpp.jsonl")
