"""Word problems: only the submitted answer earns a reward."""

import json
from pathlib import Path

import pytest

from nemo_gym import DataError, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.aviary.app import AviaryServer
from resources_servers.aviary.gsm8k import calculations, final_answer
from resources_servers.aviary.oracle import solve
from resources_servers.aviary.prepare import GSM8K, prepare
from tests.data.real_files import real_file

# See test_app.py.
pytest.importorskip("aviary.core", reason="Aviary is an extra: pip install 'nemo-gym[aviary]'")

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "gsm8k_example.jsonl"))
LINE = {"question": "How many?", "answer": "1000 + 234 = <<1000+234=1234>>1234\n#### 1,234"}
ROW = {"task_idx": 0, "task": LINE}


@pytest.fixture
def server():
    return make_server(AviaryServer, dataset=None, environment="resources_servers.aviary.gsm8k_env:Gsm8kEnvironment")


async def earned(server, row, items):
    async with rollout(server, **row) as attempt:
        return (await attempt.verify(reply(*items))).reward


async def test_submitted_number_decides_the_reward(server):
    cases = [
        ("1234", 1.0), ("1,234", 1.0), ("$1234.00", 1.0), (1234, 1.0), (1234.0, 1.0), ("1234 rolls", 1.0),
        ("1235", 0.0), (-1234, 0.0), ("", 0.0), ("it is 1234, I think", 0.0), ("nan", 0.0), ("9" * 5000, 0.0),
    ]  # fmt: skip
    wrong = [
        (answer, reward, found)
        for answer, reward in cases
        if (found := await earned(server, ROW, [call("submit_answer", answer=answer)])) != reward
    ]
    assert wrong == []


async def test_nothing_else_earns_anything(server):
    cases = [
        [""],
        ["The answer is 1234."],
        [call("calculate", expression="1234")],
        [call("submit_answer")],
        [call("submit_answer", answer=None)],
        [call("submit_answer", answer=[1234])],
        [call("submit_answer", result=1234)],
        [call("submit", answer=1234)],
        [call("submit_answer").model_copy(update={"arguments": "1234"})],
        [call("submit_answer", answer=1), call("submit_answer", answer=1234)],
    ]
    wrong = [(items, found) for items in cases if (found := await earned(server, ROW, items)) != 0.0]
    assert wrong == []


async def test_first_of_two_answers_in_a_turn_counts(server):
    async with rollout(server, **ROW) as attempt:
        first, second = (call("submit_answer", answer=each) for each in (1, 1234))
        thought = {"type": "reasoning", "id": "r", "summary": []}
        empty = reply().model_copy(update={"output": []}).model_dump()
        turn = [first, second.model_copy(update={"call_id": "second"})]
        body = type(reply()).model_validate({**empty, "output": [thought, *(each.model_dump() for each in turn)]})
        graded = await attempt.verify(body)
    assert graded.reward == 0.0


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["task_idx"])
async def test_oracle_earns_full_reward_and_silence_none(server, row):
    async with rollout(server, **row) as attempt:
        for item in solve(row):
            assert "Error" not in await attempt.send(item)
        assert (await attempt.verify()).reward == 1.0
    assert await earned(server, row, [""]) == 0.0


@pytest.mark.slow
async def test_oracle_solves_the_shared_rows(server, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", gsm8k=real_file("gsm8k", "test_first200.jsonl"))))
    assert len(rows) == 200
    async with serving(server):
        for row in rows:
            async with rollout(server, **row) as attempt:
                for item in solve(row):
                    await attempt.send(item)
                assert (await attempt.verify()).reward == 1.0, row["task_idx"]
            assert await earned(server, row, [""]) == 0.0


def test_calculations_and_answer_are_parsed():
    assert calculations("a <<1+2=3>>3 and <<3 * 2 = 6>>6, no <b> and <<>>") == ["1+2", "3 * 2"]
    assert final_answer("#### 3 #### 1,000 ") == "1,000"


@pytest.mark.parametrize("solution", ["", "1234", "1234 ####  "])
def test_solution_without_an_answer_is_rejected(solution):
    with pytest.raises(ValueError, match="must end with '####'"):
        final_answer(solution)


def test_prepare_turns_lines_into_rows(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"question": " How many? ", "answer": "<<1+1=2>>2 #### 2"}\n')
    run_prepare(prepare, ["--gsm8k", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")])
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert (row["task_idx"], row["task"]) == (0, {"question": "How many?", "answer": "<<1+1=2>>2 #### 2"})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"question": "How many?"}', "answer: Field required"),
        ('{"question": 3, "answer": "#### 3"}', "question: Input should be a valid string"),
        ('{"question": "How many?", "answer": "three"}', "must end with '####'"),
    ],
)
def test_invalid_line_is_reported_and_nothing_is_written(tmp_path, capsys, line, problem):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f'{{"question": "How many?", "answer": "#### 3"}}\n{line}\n')
    with pytest.raises(DataError, match=f"in.jsonl:2: .*{problem}"):
        prepare(output, gsm8k=source)
    assert not output.exists()
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--gsm8k", str(source), "--output", str(output)])
    assert problem in capsys.readouterr().err
    assert len(list(read_rows(prepare(output, gsm8k=source, skip_bad=True)))) == 1


def test_prepare_numbers_the_night_rounds(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=3, seed=7)))
    assert [row["task_idx"] for row in rows] == [7, 8, 9]


def test_fetched_questions_are_split(fake_hub, tmp_path):
    lines = [json.dumps({**LINE, "question": f"How much is {number} and 1?"}) for number in range(60)]
    fake_hub.file(GSM8K.url, "\n".join(lines).encode())
    order = {"split": "train", "count": 20}
    train, validation = (
        {row["task"]["question"] for row in read_rows(prepare(tmp_path / "rows.jsonl", fetch_gsm8k=True, **each))}
        for each in (order, {"split": "validation", "count": 2})
    )
    assert (len(train), len(validation), train & validation) == (20, 2, set())
    assert len(fake_hub.requests) == 1
    with pytest.raises(DataError, match="70 rows of split 'train' are asked for, but only"):
        prepare(tmp_path / "rows.jsonl", fetch_gsm8k=True, split="train", count=70)
