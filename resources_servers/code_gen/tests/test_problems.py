"""Generated problems: their splits, their tests, and the rewards of right and of shallow solutions."""

import asyncio
import json
import random
import re
from itertools import islice

import pytest

from nemo_gym import UsageError, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.code_gen.app import CodeGenServer
from resources_servers.code_gen.oracle import solve
from resources_servers.code_gen.prepare import prepare
from resources_servers.code_gen.problems.problem import INT, Problem, cases_of
from resources_servers.code_gen.problems.rows import FAMILIES, generated_rows, task_of


def question(row):
    return row["responses_create_params"]["input"][0]["content"]


def unit_tests(row):
    return row["verifier_metadata"]["unit_tests"]


def is_function(row):
    return "fn_name" in unit_tests(row)


@pytest.fixture(scope="module")
def rows():
    """Return at least two rows of each family and form."""
    return list(islice(generated_rows(3), 8 * len(FAMILIES)))


def test_splits_share_no_task(tmp_path):
    train = list(read_rows(prepare(tmp_path / "train.jsonl", 400, 1, split="train")))
    validation = list(read_rows(prepare(tmp_path / "validation.jsonl", 40, 2, split="validation")))
    assert (len(set(map(task_of, train))), len(set(map(task_of, validation)))) == (400, 40)
    assert set(map(task_of, train)) & set(map(task_of, validation)) == set()
    assert list(read_rows(prepare(tmp_path / "again.jsonl", 20, 1, split="train"))) == train[:20]


def test_two_forms_of_a_problem_are_one_task(rows):
    function, program = (next(row for row in rows if is_function(row) == wanted) for wanted in (True, False))
    both = {"verifier_metadata": {"reference": program["verifier_metadata"]["reference"].partition("\nlines = ")[0]}}
    assert task_of(program) == task_of(both)
    assert task_of(program) != task_of(function)


def test_families_come_equally_often(rows):
    counts = [sum(row["source"] == f"generated/{name}" for row in rows) for name in FAMILIES]
    assert min(counts) >= 4
    assert len({is_function(row) for row in rows}) == 2


def test_question_shows_two_of_the_tests(rows):
    for row in rows:
        tests, text = unit_tests(row), question(row)
        assert 8 <= len(tests["inputs"]) == len(tests["outputs"]) <= 14
        assert len(set(tests["inputs"])) == len(tests["inputs"])
        if is_function(row):
            results = re.findall(r"^>>> .*\n(.*)$", text, re.MULTILINE)
            assert results == [repr(json.loads(result)) for result in tests["outputs"][:2]]
        else:
            blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
            assert blocks == [tests["inputs"][0], tests["outputs"][0], tests["inputs"][1], tests["outputs"][1]]


def test_no_shallow_answer_passes_most_tests(rows):
    for row in rows:
        tests = unit_tests(row)
        most = max(tests["outputs"].count(output) for output in tests["outputs"])
        echoed = sum(given == output for given, output in zip(tests["inputs"], tests["outputs"], strict=True))
        assert max(most, echoed) <= 0.75 * len(tests["inputs"]), row["source"]


def test_constant_problem_is_discarded():
    problem = Problem(
        "zero", "Return 0.", [("n", INT)], INT, "def zero(n): return 0", lambda draw: [draw.randint(0, 99)]
    )
    assert cases_of(problem, random.Random(0)) is None


def memorized(row):
    """Return code that knows the two examples and repeats one of them for other inputs."""
    inputs, outputs = (unit_tests(row)[key][:2] for key in ("inputs", "outputs"))
    if not is_function(row):
        known = repr(dict(zip(inputs, outputs, strict=True)))
        return f"import sys\nprint({known}.get(sys.stdin.read(), {outputs[0]!r}), end='')"
    known = repr({given: json.loads(output) for given, output in zip(inputs, outputs, strict=True)})
    return (
        f"import json\ndef {unit_tests(row)['fn_name']}(*given):\n"
        f"    return {known}.get('\\n'.join(map(json.dumps, given)), {json.loads(outputs[0])!r})"
    )


@pytest.mark.slow
@pytest.mark.needs_bubblewrap
async def test_only_whole_solutions_are_rewarded(rows):
    """Play one row of each family and form: the reference, and a solution that knows the examples."""
    chosen = {(row["source"], is_function(row)): row for row in rows}.values()
    server = make_server(CodeGenServer, num_processes=3)
    async with serving(server):

        async def reward_of(row, answer):
            async with rollout(server, **row) as attempt:
                return (await attempt.verify(reply(answer))).reward

        right = await asyncio.gather(*(reward_of(row, *solve(row)) for row in chosen))
        known = await asyncio.gather(*(reward_of(row, f"```python\n{memorized(row)}\n```") for row in chosen))
    assert [row["source"] for row, reward in zip(chosen, right, strict=True) if reward != 1.0] == []
    assert [row["source"] for row, reward in zip(chosen, known, strict=True) if reward != 0.0] == []


def test_humaneval_is_not_split(tmp_path, capsys):
    with pytest.raises(UsageError, match="HumanEval's problems are not split"):
        prepare(tmp_path / "rows.jsonl", input=tmp_path / "HumanEval.jsonl.gz", split="train")
    with pytest.raises(SystemExit, match="0"):
        run_prepare(prepare, ["--help"])
    assert "--split {train,validation}" in capsys.readouterr().out
