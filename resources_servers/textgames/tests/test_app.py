"""Games in processes of their own, with the included game, and with a library whose environments misbehave."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from nemo_gym import DataError, EnvironmentFailed, InvalidTask
from nemo_gym.jsonl import dump_line, read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.textgames.app import TextGamesServer
from resources_servers.textgames.games.included_game import secret_of
from resources_servers.textgames.library import Library, opening_of
from resources_servers.textgames.oracle import solve
from resources_servers.textgames.prepare import prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))
ROW = {"responses_create_params": {"input": []}}
PATIENCE_S = 60.0

# A package with the name and the interface of GEM, whose environments do what their name says.
STAND_IN = """
import os, random, sys, time
from pathlib import Path
from types import SimpleNamespace

NAMES = ("draws", "hangs", "exits", "dies", "huge", "nan", "word", "raises", "prints", "waits", "resets never", "odd")
envs = SimpleNamespace(registration=SimpleNamespace(ENV_REGISTRY=dict.fromkeys(NAMES)))


class Env:
    def __init__(self, name, path=None):
        self.name, self.path = name, path

    def reset(self, seed):
        random.seed(seed)
        while self.name == "resets never":
            time.sleep(1)
        return f"pid {os.getpid()} of {os.getppid()}", {"suffix": "Move."}

    def step(self, action):
        match self.name:
            case "hangs":
                while True:
                    pass
            case "exits":
                sys.exit(3)
            case "dies":
                os._exit(3)
            case "raises":
                raise KeyError("the cellar")
            case "prints":
                print("noise" * 1000, flush=True)
                assert sys.stdin.read() == ""
            case "waits":
                while not Path(self.path).exists():
                    time.sleep(0.01)
        observation = {"huge": "x" * 2**26, "odd": 5}.get(self.name, f"drew {random.random()}")
        reward = {"nan": float("nan"), "word": "much"}.get(self.name, 0.5)
        return observation, reward, action == "stop", False, {}


def make(name, **kwargs):
    return Env(name, **kwargs)
"""
FAULTS = {
    "hangs": "no reply within 0.5 s",
    "exits": "SystemExit: 3",
    "dies": "the process of the game has ended",
    "huge": "more than 8,388,608 bytes",
    "nan": "the game's reply is not valid",
    "word": "could not convert string to float: 'much'",
    "raises": "KeyError: 'the cellar'",
    "odd": "AttributeError: 'int' object",
}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make the stand-in for GEM importable, and return a function that makes servers with it."""
    (tmp_path / "packages" / "gem").mkdir(parents=True)
    (tmp_path / "packages" / "gem" / "__init__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=os.pathsep)
    return lambda **settings: make_server(TextGamesServer, library="gem", **settings)


async def begun(client, **row):
    return (await client.post("/reset", json={**ROW, **row})).json()["observation"]


async def moved(client, text):
    return await client.post("/step", json={**ROW, "response": reply(text).model_dump(mode="json")})


def process_in(observation):
    return int(observation.split()[1])


async def has_ended(pid):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            await asyncio.sleep(0.02)


async def test_oracle_wins_the_examples():
    server = make_server(TextGamesServer)
    for row in EXAMPLES:
        async with rollout(server, **row) as attempt:
            graded = await attempt.verify(reply(*solve(row)))
        assert (graded.reward, graded.steps, graded.terminated) == (1.0, 1, True)


async def test_reasoning_is_not_part_of_the_move():
    right, wrong = secret_of(3), secret_of(3) % 20 + 1
    async with rollout(make_server(TextGamesServer), seed=3) as attempt:
        text = f"[{wrong}]</think>[{right}]"
        assert (await attempt.verify(reply(f"<think>{text}"))).reward == 1.0


async def test_unusable_answers_are_truncated_by_the_game():
    async with rollout(make_server(TextGamesServer)) as attempt:
        graded = await attempt.verify(reply(*["I do not know."] * 9))
    assert (graded.reward, graded.steps, graded.terminated, graded.truncated) == (0.0, 6, False, True)


@pytest.mark.parametrize("name", FAULTS)
async def test_fault_of_a_game_fails_the_rollout(stand_in, name):
    async with serving(stand_in(step_timeout_s=0.5 if name == "hangs" else 60)) as client:
        pid = process_in(await begun(client, game=name))
        with pytest.raises(EnvironmentFailed, match=FAULTS[name]):
            await moved(client, "go")
        await client.post("/close")
        assert await has_ended(pid)


async def test_fault_of_a_reset_fails_the_rollout(stand_in):
    async with serving(stand_in(start_timeout_s=5)) as client:
        with pytest.raises(EnvironmentFailed, match="no reply within 5 s"):
            await begun(client, game="resets never")
    for row, problem in (({"game": "chess"}, "GEM has no environment 'chess'"),
                         ({"game": "draws", "env_kwargs": {"x": 1}}, "cannot be created with {'x': 1}")):  # fmt: skip
        async with serving(stand_in()) as client:
            with pytest.raises(InvalidTask, match=problem):
                await begun(client, **row)


async def test_game_prints_and_reads_nothing_of_the_protocol(stand_in):
    async with serving(stand_in()) as client:
        await begun(client, game="prints")
        assert (await moved(client, "go")).json()["reward"] == 0.5


async def test_waiting_game_does_not_delay_another(stand_in, tmp_path):
    server = stand_in()
    async with serving(server) as slow, serving(server) as quick:
        await begun(slow, game="waits", env_kwargs={"path": str(tmp_path / "go")})
        waiting = asyncio.create_task(moved(slow, "stop"))
        await begun(quick, game="draws")
        assert (await moved(quick, "stop")).json()["terminated"]
        assert not waiting.done()
        (tmp_path / "go").touch()
        assert (await waiting).json()["terminated"]


async def test_random_numbers_of_a_game_depend_on_its_seed_alone(stand_in):
    server = stand_in()

    async def played(seed, others=0):
        async with serving(server) as client:
            await begun(client, game="draws", seed=seed)
            async with serving(server) as other:
                for _ in range(others):
                    await begun(other, game="draws", seed=9)
                    await moved(other, "go")
            return [(await moved(client, "go")).json()["observation"] for _ in range(3)]

    alone = await played(1)
    assert await played(1, others=2) == alone != await played(2)


async def test_killed_library_is_started_again(stand_in):
    async with serving(stand_in()) as client:
        parent = int((await begun(client, game="draws")).split()[3])
        os.kill(parent, 9)
        assert await has_ended(parent)
        await begun(client, game="draws")
        assert (await moved(client, "stop")).json()["reward"] == 0.5


async def test_library_and_games_end_with_the_server(stand_in):
    async with serving(stand_in()) as client:
        words = (await begun(client, game="draws")).split()
    assert await has_ended(int(words[1]))
    assert await has_ended(int(words[3]))


async def test_interrupted_step_ends_the_process(stand_in):
    library = Library("gem")
    seat = await library.seat("hangs")
    begun = await seat.begin(opening_of({**ROW, "game": "hangs"}), PATIENCE_S)
    pid = process_in(begun.observation)
    step = asyncio.create_task(seat.step("go", PATIENCE_S))
    await asyncio.sleep(0)
    step.cancel()
    await asyncio.wait([step])
    await seat.close()
    assert await has_ended(pid)
    await library.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"library": "gem"}, "Install it: pip install gem-llm==0.1.0"),
        ({"python": "/no/such/python"}, "'/no/such/python' cannot be started"),
        ({"python": "/bin/false"}, "its process has ended"),
    ],
)
async def test_missing_library_is_reported_with_a_remedy(settings, problem, monkeypatch):
    # An interpreter without packages, because this one may have the library.
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    if "python" not in settings:
        settings["python"] = getattr(sys, "_base_executable", sys.executable)
    async with serving(make_server(TextGamesServer, **settings)) as client:
        with pytest.raises(EnvironmentFailed, match=problem):
            await begun(client)


def test_rows_have_ascending_seeds(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=3, seed=5)))
    assert [row["seed"] for row in rows] == [5, 6, 7]
    train, validation = (
        {row["seed"] for row in read_rows(prepare(tmp_path / f"{split}.jsonl", count=20, split=split))}
        for split in ("train", "validation")
    )
    assert not train & validation


def test_game_that_cannot_be_played_is_reported_before_the_run(tmp_path):
    with pytest.raises(DataError, match="included: chess: there is no game 'chess'"):
        prepare(tmp_path / "rows.jsonl", game="chess")
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("game", "rows", "problem"),
    [
        ("gsm8k", None, "skyrl-gym has no tasks for 'gsm8k'"),
        ("gsm8k:{file}", [], "the file has no rows"),
        ("gsm8k:{file}", [{"prompt": "text"}], "source.jsonl:1: `prompt` is not a list of messages"),
    ],
)
def test_rows_of_skyrl_are_checked(tmp_path, game, rows, problem):
    file = tmp_path / "source.jsonl"
    file.write_bytes(b"".join(map(dump_line, rows or [])))
    with pytest.raises(DataError, match=problem):
        prepare(tmp_path / "rows.jsonl", "skyrl_gym", game.format(file=file))
