"""Scores of each generator's own answers, of unusual answers, and of invalid rows."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nemo_gym import DataError, InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.reasoning_gym.app import LONGEST_ANSWER, ReasoningGymServer, answer_in
from resources_servers.reasoning_gym.oracle import answer_to, solve
from resources_servers.reasoning_gym.scoring import is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'reasoning-gym' is not installed")

ACCEPTS_ANY_ANSWER = {"game_of_life_halting"}
"""Generators whose scorer accepts any text."""
FOLDER = Path(__file__).resolve().parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
COUNTDOWN = {"question": "?", "metadata": {"source_dataset": "countdown", "numbers": [6, 7], "target": 42}}
IN_THE_PACKAGE = """
import json, sys
from nemo_gym import DataError
from resources_servers.reasoning_gym.generate import entries, made_by
from resources_servers.reasoning_gym.scoring import generator_names, load_scorers

def problem_of(name, config):
    try:
        list(entries([{"name": name, "weight": 1, "config": config}], 1, 0))
    except DataError as error:
        return str(error)

load_scorers()
configs = {"rubiks_cube": [{}, {"cube_size": 2}, {"cube_size": 4}], "boxnet": [{}, {"max_box_num": 4}]}
rows = [next(made_by(name, config, 1, 5)) for name in generator_names() for config in configs.get(name, [{}])]
problems = [problem_of(*order) for order in json.loads(sys.argv[1])]
sys.stderr.write(json.dumps({"rows": rows, "problems": problems}))
"""
WRONG_ORDERS = {
    "unknown key": ("maze", {"no_such": 1}),
    "wrong number": ("maze", {"min_dist": -1}),
    "wrong kind": ("maze", {"min_dist": "near"}),
    "mixture": ("composite", {}),
    "unsolved": ("rubiks_cube", {"cube_size": 6, "min_scramble_steps": 50, "max_scramble_steps": 50}),
}


@pytest.fixture(scope="module")
def made():
    """A row of each generator, some with other settings, and the messages for wrong orders."""
    orders = json.dumps(list(WRONG_ORDERS.values()))
    done = subprocess.run([sys.executable, "-c", IN_THE_PACKAGE, orders], capture_output=True, timeout=90, check=True)
    return json.loads(done.stderr.splitlines()[-1])


@pytest.fixture
def one_of_each(made):
    return made["rows"]


@pytest.fixture
def server():
    return make_server(ReasoningGymServer)


async def grade(server, text, row):
    async with rollout(server, **row) as attempt:
        return await attempt.verify(reply(text))


def test_answer_is_read_from_tags_box_or_text():
    cases = [
        ("<answer>7</answer>", "7"),
        ("<answer>6</answer>, no: <answer>\n 7 \n</answer>.", "7"),
        (r"<answer>7</answer> \boxed{8}", "7"),
        (r"\boxed{6} \boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (" It is 7. ", "It is 7."),
        ("<answer>7</answer> and </answer>", "7"),
        ("<answer>6</answer> then <answer>7", "6"),
        ("<answer>7", "<answer>7"),
        ("7</answer>", "7</answer>"),
        ("</answer><answer>", "</answer><answer>"),
        ("<answer><answer>7</answer></answer>", "7"),
        ("<answer>1 2\n3 4</answer>", "1 2\n3 4"),
        ("<think><answer>6</answer></think>7", "7"),
        ("<answer>6</answer></think><answer>7</answer>", "7"),
        ("<think><answer>6</answer>", None),
        ("<answer> </answer>", None),
        (r"\boxed{}", None),
        ("", None),
        (" \n", None),
    ]
    wrong = [(text, answer, found) for text, answer in cases if (found := answer_in(text)) != answer]
    assert wrong == []


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["metadata"]["source_dataset"])
async def test_example_rewards_the_oracle_more_than_silence(server, row):
    graded = await grade(server, *solve(row), row)
    assert (graded.reward, graded.score, graded.task_name) == (1.0, 1.0, row["metadata"]["source_dataset"])
    assert graded.extracted_answer == answer_to(row)
    assert (graded.question, graded.answer, graded.metadata) == (row["question"], row["answer"], row["metadata"])
    nothing = await grade(server, "", row)
    assert nothing.extracted_answer is None
    assert nothing.reward < 0.1


@pytest.mark.slow
async def test_every_generator_rewards_its_own_answer_most(server, one_of_each):
    assert len({row["metadata"]["source_dataset"] for row in one_of_each}) >= 105
    earned = {}
    async with serving(server):
        for row in one_of_each:
            texts = (*solve(row), rf"\boxed{{{answer_to(row)}}}", "", "moo")
            rewards = [(await grade(server, text, row)).reward for text in texts]
            earned[row["metadata"]["source_dataset"], json.dumps(row["metadata"].get("generator_config"))] = rewards
    assert {name: tags for name, (tags, *_) in earned.items() if tags != 1.0} == {}
    # Answers with unbalanced braces, such as programs and letter maps, cannot be boxed.
    assert sum(box == 1.0 for _, box, _, _ in earned.values()) >= len(earned) - 3
    assert {name: nothing for name, (_, _, nothing, _) in earned.items() if nothing >= 0.1} == {}
    assert {name for (name, _), (_, _, _, moo) in earned.items() if moo >= 0.2} == ACCEPTS_ANY_ANSWER


async def test_default_score_is_the_packages_own(server):
    row = {"question": "?", "answer": "0.5", "metadata": {"source_dataset": "coin_flip"}}
    async with serving(server):
        assert (await grade(server, "<answer>0.55</answer>", row)).reward == 1.0


UNEARNED = [
    ("game_of_life_halting", {"answer": "False"}, {"False": 1, " false.": 1, "True": 0, "[]": 0, "I do not know": 0}),
    ("coin_flip", {"answer": "0.1640625"}, {"21/128": 1, "0.16406": 1, "0": 1 / 9, "0.16": 4 / 9, "0.5": 2 / 3}),
    ("coin_flip", {"answer": "0.5"}, {"1/2": 1, "0.55": 3 / 4, "0.50000000001": 1}),
    ("complex_arithmetic", {"answer": "2.0 + 3.0i", "result": [2, 3]}, {"2 + 3i": 1, "nan": 0, "nan+nanj": 0}),
    (
        "simple_integration",
        {"answer": "x**2 + C", "integrand": "2*x", "variable": "x"},
        {"x**2": 1, "x**2 + C": 1, "Integral(2*x, x)": 0, "x**2 + Integral(0, x)": 0},
    ),
    (
        "intermediate_integration",
        {"answer": "Integral(asin(x)**3, x) + C", "integrand": "asin(x)**3", "variable": "x"},
        {"Integral(asin(x)**3, x)": 1},
    ),
]


@pytest.mark.parametrize(("name", "known", "rewards"), UNEARNED, ids=lambda part: part if type(part) is str else "")
async def test_unearned_full_marks_are_corrected(name, known, rewards):
    server = make_server(ReasoningGymServer, take_back_unearned=True)
    row = {"question": "?", "answer": known["answer"], "metadata": {"source_dataset": name, **known}}
    async with serving(server):
        earned = {text: (await grade(server, f"<answer>{text}</answer>", row)).reward for text in rewards}
    assert earned == pytest.approx(rewards)


@pytest.mark.slow
def test_impossible_orders_are_explained(made):
    problems = dict(zip(WRONG_ORDERS, made["problems"], strict=True))
    assert problems["unknown key"].startswith('maze: rejected {"no_such": 1} (TypeError: ')
    assert problems["wrong number"].startswith('maze: rejected {"min_dist": -1} (AssertionError: ')
    assert problems["wrong kind"].startswith('maze: rejected {"min_dist": "near"} (TypeError: ')
    assert problems["mixture"].startswith("'composite' only mixes generators")
    assert "100 questions in a row have no known full answer" in problems["unsolved"]


PROGRAMS = [
    "__import__('pathlib').Path({path!r}).touch()",
    "[__import__('pathlib').Path({path!r}).touch()]",
    "[[open({path!r}, 'w')]]",
    "(lambda: open({path!r}, 'w'))()",
    "sympify(\"open({path!r}, 'w')\")",
    "sin(\"open({path!r}, 'w')\")",
    "Symbol.__init__.__globals__['__builtins__']['open']({path!r}, 'w')",
    "eval('open')({path!r}, 'w')",
    "(open)({path!r}, 'w')",
    "x = open({path!r}, 'w')",
    "[open({path!r}, 'w') for _ in [0]]",
    '["""]"""; open({path!r}, \'w\')',
]


@pytest.mark.slow
async def test_no_scorer_executes_an_answer(server, one_of_each, tmp_path):
    marks = [str(tmp_path / f"mark{number}") for number in range(len(PROGRAMS))]
    texts = [f"<answer>{program.format(path=mark)}</answer>" for program, mark in zip(PROGRAMS, marks, strict=True)]
    async with serving(server):
        for row in one_of_each:
            async with rollout(server, **row) as attempt:
                graded = await asyncio.gather(*(attempt.verify(reply(text)) for text in texts))
            name = row["metadata"]["source_dataset"]
            assert name in ACCEPTS_ANY_ANSWER or max(each.reward for each in graded) < 0.5, name
    assert list(tmp_path.iterdir()) == []


async def test_endless_answer_affects_only_its_rollout():
    # The servers share their workers. Only the endless answer has little time, because others may be slow, too.
    server, hasty = (make_server(ReasoningGymServer, score_timeout_seconds=limit_s) for limit_s in (100, 3))
    async with (
        serving(server),
        rollout(hasty, **COUNTDOWN) as hostile,
        rollout(server, **EXAMPLES[0]) as plain,
        rollout(server, **COUNTDOWN) as following,
    ):
        assert hasty.workers is server.workers
        # Ensures that two workers have loaded the package.
        await asyncio.gather(*(server.workers.run(time.sleep, 0.2, deadline_s=100) for _ in range(2)))
        running = asyncio.create_task(hostile.verify(reply("<answer>9**9**9**9</answer>")))
        assert (await plain.verify(reply(*solve(EXAMPLES[0])))).reward == 1.0
        assert not running.done()
        assert (await running).reward == 0.0
        assert (await following.verify(reply("<answer>6 * 7</answer>"))).reward == 1.0


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("x" * (LONGEST_ANSWER + 1), COUNTDOWN),
        # The scorers raise on the following answers.
        ("P", {"question": "?", "answer": "2 × 3", "metadata": {"source_dataset": "prime_factorization"}}),
        ("42", {"question": "?", "metadata": {"source_dataset": "boxnet", "initial_state": {"0.5_0.5": ["box_red"]}}}),
    ],
)
async def test_answer_that_cannot_be_scored_earns_nothing(server, text, row):
    assert (await grade(server, text, row)).reward == 0.0


@pytest.mark.parametrize(("config", "reward"), [({}, 1.0), ({"max_value": 5}, 0.01)])
async def test_scorer_uses_the_generators_settings(server, config, reward):
    metadata = {"source_dataset": "puzzle24", "numbers": [6, 4, 1, 1], "generator_config": config}
    graded = await grade(server, "<answer>6 * 4 * 1 * 1</answer>", {"question": "?", "metadata": metadata})
    assert graded.reward == reward


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("leg_countin", r"no generator 'leg_countin'\. Did you mean 'leg_counting'"),
        ("", r"no generator ''\."),
        ("composite", "'composite' only mixes generators"),
    ],
)
async def test_unknown_generator_fails_the_rollout_at_seeding(server, name, problem):
    row = {"question": "?", "answer": "7", "metadata": {"source_dataset": name}}
    with pytest.raises(InvalidTask, match=problem):
        await grade(server, "7", row)
    async with serving(server) as client:
        body = {**row, "responses_create_params": {"input": []}, "response": reply("7").model_dump(mode="json")}
        with pytest.raises(InvalidTask, match=problem):
            await client.post("/verify", json=body)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"source_dataset": "rubiks_cube"}, r"rubiks_cube cannot score any answer \(KeyError: 'cube_size'\)"),
        ({"source_dataset": "maze", "generator_config": {"no_such": 1}}, "generator_config: maze rejected"),
        ({"source_dataset": "maze", "generator_config": [1]}, "must be an object with the settings of maze"),
    ],
)
@pytest.mark.parametrize("answer", ["7", "", "7" * 200_000], ids=["short", "none", "long"])
async def test_unscorable_row_fails_the_rollout(server, answer, metadata, problem):
    with pytest.raises(InvalidTask, match=problem):
        await grade(server, answer, {"question": "?", "answer": None, "metadata": metadata})


@pytest.mark.parametrize("row", [{}, {"metadata": {}}, {"metadata": {"source_dataset": 3}}])
async def test_row_without_generator_is_rejected_with_its_field(server, row):
    async with serving(server) as client:
        answer = await client.post("/seed_session", json={"responses_create_params": {"input": []}, **row})
    assert answer.status_code == 422
    assert "metadata" in answer.text


STARTING = """
import asyncio, sys
from nemo_gym.testing import make_server, on_a_port
from resources_servers.reasoning_gym.app import ReasoningGymServer
import httpx

async def main():
    answers = 0
    async with on_a_port(make_server(ReasoningGymServer)) as url, httpx.AsyncClient(verify=False) as client:
        while (await client.get(f"{url}/reverify_mode")).status_code != 200:
            pass
        row = {"responses_create_params": {"input": []}, "metadata": {"source_dataset": "maze"}}
        seeding = asyncio.create_task(client.post(f"{url}/seed_session", json=row, timeout=60))
        while not seeding.done():
            await client.get(f"{url}/reverify_mode")
            answers += 1
            await asyncio.sleep(0.02)
    assert (await seeding).status_code == 200
    # A server that loads the package in its event loop, or before it listens, gives one or two answers meanwhile.
    assert answers > 4, answers
    assert "reasoning_gym" not in sys.modules

asyncio.run(main())
"""


@pytest.mark.slow
def test_server_answers_while_workers_load_the_package():
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class _NotInstalled:
    """A finder that reports only a folder, like this one, under the package's name."""

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, None, is_package=True) if name == "reasoning_gym" else None


async def test_missing_package_stops_the_server_with_advice(monkeypatch, server):
    monkeypatch.setattr(sys, "meta_path", [_NotInstalled(), *sys.meta_path])
    with pytest.raises(DataError, match=r"pip install 'nemo-gym\[reasoning-gym\]'"):
        async with serving(server):
            pass


def test_package_is_found_from_within_its_namesake_folder():
    looking = "import sys; sys.path[:0] = ['.', '../..']; import resources_servers.reasoning_gym.scoring as scoring;"
    looking += "print(scoring.is_installed())"
    found = subprocess.run([sys.executable, "-c", looking], cwd=FOLDER, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"


def test_metrics_cover_each_generator(server):
    earned = {"maze": 1.0, "ab": 0.0}
    tasks = [[{"reward": reward, "task_name": name, "extracted_answer": "7"}] for name, reward in earned.items()]
    metrics = server.compute_metrics(tasks)
    assert metrics["pass@1/accuracy"] == 50.0
    assert (metrics["maze/pass@1/accuracy"], metrics["ab/pass@1/accuracy"]) == (100.0, 0.0)
    assert "pass@1/accuracy" in server.get_key_metrics(metrics)
