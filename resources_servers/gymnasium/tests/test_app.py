"""Gymnasium's environments in text: observations, actions and rewards."""

from pathlib import Path

import pytest

from nemo_gym import InvalidTask, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving

# Imported first and under this name, or pytest would import this folder's `__init__.py` as `gymnasium`.
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is an extra: pip install 'nemo-gym[gymnasium]'")

from resources_servers.gymnasium.actions import Actions, NoTextActions  # noqa: E402
from resources_servers.gymnasium.app import GymnasiumEnvironmentServer  # noqa: E402
from resources_servers.gymnasium.games import known  # noqa: E402
from resources_servers.gymnasium.oracle import full_reward, solve  # noqa: E402
from resources_servers.gymnasium.play import Play  # noqa: E402
from resources_servers.gymnasium.prepare import prepare  # noqa: E402

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))
TEXT_GAMES = ("FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1")


@pytest.fixture
def server():
    return make_server(GymnasiumEnvironmentServer)


def test_gymnasium_is_the_package_not_the_folder():
    assert hasattr(gymnasium, "make")


async def played(server, *texts, **row):
    async with serving(server) as client:
        row = {"responses_create_params": {"input": []}, **row}
        replies = [(await client.post("/reset", json=row)).json()]
        for text in texts:
            turn = {**row, "response": reply(text).model_dump(mode="json")}
            replies.append((await client.post("/step", json=turn)).json())
        await client.post("/close")
        return replies


@pytest.mark.parametrize("env_id", TEXT_GAMES)
async def test_oracle_earns_more_than_silence(server, tmp_path, env_id):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", env_id, 3)))
    assert [row["env_id"] for row in rows] == [env_id] * 3
    for row in rows:
        async with rollout(server, **row) as attempt:
            graded = await attempt.verify(reply(*solve(row)))
            assert (graded.reward, graded.terminated) == (full_reward(row), True)
            assert (await attempt.verify(reply(""))).reward < full_reward(row)


async def test_oracle_wins_the_examples(server):
    for row in EXAMPLES:
        async with rollout(server, **row) as attempt:
            assert (await attempt.verify(reply(*solve(row)))).reward == full_reward(row) > 0


async def test_lake_shows_the_position_in_brackets(server):
    lake = {"desc": ["SF", "HG"]}
    first, moved, won = await played(server, "<answer>right</answer>", "1", env_kwargs=lake)
    assert first["observation"] == "[S]  F\n H   G\nYour actions: left (0), down (1), right (2), up (3)."
    assert (moved["observation"], moved["reward"], moved["terminated"]) == (" S  [F]\n H   G", 0.0, False)
    assert (won["reward"], won["terminated"]) == (1.0, True)


async def test_falling_into_a_hole_ends_the_game(server):
    *_, last = await played(server, "down", env_kwargs={"desc": ["SF", "HG"]})
    assert (last["reward"], last["terminated"]) == (0.0, True)


async def test_step_limit_truncates_the_game(server):
    *_, last = await played(server, "left", "left", env_kwargs={"max_episode_steps": 2})
    assert (last["terminated"], last["truncated"]) == (False, True)


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("Taxi-v4", ("The taxi is in row ", "The passenger waits at ", "pickup (4)", "|Y| : |B: |")),
        ("CliffWalking-v1", ("x  C  C", "up (0)")),
        ("Blackjack-v1", ("Your cards add up to ", "The dealer shows ", "stick (0), hit (1)")),
        ("FrozenLake8x8-v1", ("[S]", "left (0)")),
        ("CartPole-v1", ("Observation: [", "Your actions: 0, 1.")),
        ("MountainCarContinuous-v0", ("Observation: [", "a JSON list of numbers")),
    ],
)
async def test_first_observation_of_each_environment(server, env_id, words):
    (first,) = await played(server, env_id=env_id, seed=3)
    for each in words:
        assert each in first["observation"]
    assert "\x1b" not in first["observation"]


async def test_observation_reports_a_passenger_in_the_taxi(server):
    row = {"env_id": "Taxi-v4", "seed": 2}
    moves = [each for each in solve(row)[:-1]]
    *_, last = await played(server, *moves, **row)
    assert "The passenger is in the taxi and wants to go to" in last["observation"]


async def test_seed_determines_the_game(server):
    one, again, other = [(await played(server, env_id="Taxi-v4", seed=seed))[0]["observation"] for seed in (1, 1, 2)]
    assert one == again != other


async def test_concurrent_games_do_not_interfere(server):
    lake, cart = (
        {"responses_create_params": {"input": []}, "env_id": each} for each in ("FrozenLake-v1", "CartPole-v1")
    )
    async with serving(server) as one, serving(server) as other:
        for client, row in ((one, lake), (other, cart)):
            await client.post("/reset", json=row)
        for client, row, reward in ((one, lake, 0.0), (other, cart, 1.0)):
            turn = {**row, "response": reply("1").model_dump(mode="json")}
            assert (await client.post("/step", json=turn)).json()["reward"] == reward


async def test_continuous_actions_are_lists(server):
    row = {"env_id": "MountainCarContinuous-v0"}
    _, moved, too_far = await played(server, "I push: [0.5]", "[7]", **row)
    assert moved["reward"] == pytest.approx(-0.1 * 0.5**2)
    assert too_far["observation"].startswith("Your answer names no action. ")


async def test_unreadable_answers_earn_their_reward_and_end_game(server):
    first, *steps = await played(server, "hm", "", "left", "4", "-1", "1.5", unreadable_reward=-2.0)
    assert [each["reward"] for each in steps] == [-2.0, -2.0, 0.0, -2.0, -2.0, -2.0]
    assert [each["truncated"] for each in steps] == [False] * 5 + [True]
    assert steps[0]["observation"] == f"Your answer names no action. {first['observation'].splitlines()[-1]}"


async def test_config_provides_the_default_environment():
    server = make_server(
        GymnasiumEnvironmentServer,
        env_id="CartPole-v1",
        env_kwargs={},
        action_names=["push left", "push right"],
        unreadable_reward=-1.0,
        unreadable_answers=1,
    )
    first, moved, unreadable = await played(server, "push right", "jump")
    assert first["observation"].endswith("Your actions: push left (0), push right (1).")
    assert moved["reward"] == 1.0
    assert (unreadable["reward"], unreadable["truncated"]) == (-1.0, True)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"env_id": "NoSuch-v0"}, "'NoSuch-v0' cannot be created"),
        ({"env_kwargs": {"no_such": 1}}, "'FrozenLake-v1' cannot be created"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"render_mode": "human"}}, "Remove render_mode"),
        ({"env_kwargs": {"render_mode": [1]}}, "Remove render_mode"),
        ({"env_id": "CartPole-v1", "action_names": ["push"]}, "cannot be played in text: there are 2 actions, but 1"),
    ],
)
async def test_unplayable_environment_fails_the_rollout_with_the_reason(server, row, problem):
    with pytest.raises(InvalidTask, match=problem):
        await played(server, **row)


@pytest.mark.parametrize("wrong", [{"env_id": "os:Env-v0"}, {"seed": -1}, {"env_kwargs": []}])
async def test_invalid_row_is_rejected_with_its_field(server, wrong):
    async with serving(server) as client:
        answer = await client.post("/reset", json={"responses_create_params": {"input": []}, **wrong})
        assert (answer.status_code, next(iter(wrong)) in answer.text) == (422, True)


SPACES = gymnasium.spaces


def test_action_of_each_space_is_parsed():
    cases = [
        (SPACES.Discrete(3), "2", 2),
        (SPACES.Discrete(3), "3", None),
        (SPACES.Discrete(3, start=5), "7", 7),
        (SPACES.Discrete(3, start=5), "2", None),
        (SPACES.MultiDiscrete([3, 2]), "first [1, 0], no: [2, 1]", [2, 1]),
        (SPACES.MultiDiscrete([3, 2]), "[3, 1]", None),
        (SPACES.MultiDiscrete([3, 2]), "[1]", None),
        (SPACES.MultiDiscrete([3, 2]), "[1, 1", None),
        (SPACES.MultiBinary(3), "[1, 0, 1]", [1, 0, 1]),
        (SPACES.Box(-1, 1, (2,)), "[0.5, -1]", [0.5, -1]),
        (SPACES.Box(-1, 1, (2,)), "[0.5, 1e999]", None),
        (SPACES.Box(-1, 1, (2,)), '["a", "b"]', None),
        (SPACES.Box(-1, 1, (2,)), "[9" + "9" * 5000 + ", 1]", None),
        (SPACES.Box(-1, 1, (2,)), "[" * 100_000, None),
        (SPACES.Box(-1, 1, (2, 2)), "no: [[0, 0], [0, 0]], but [[0.5, -1],\n[0, 1]]", [[0.5, -1], [0, 1]]),
        (SPACES.Box(-1, 1, (2, 2)), "[0.5, -1, 0, 1]", [[0.5, -1], [0, 1]]),
        (SPACES.Box(-1, 1, (2, 2)), "[[0, 1], [0]]", None),
        (SPACES.Box(-1, 1, (2, 2)), "[0, " * 20_000, None),
        (SPACES.MultiBinary((1, 2)), "[[1, 0]]", [[1, 0]]),
        (SPACES.Text(5), " abc ", "abc"),
        (SPACES.Text(5), "abcdef", None),
        (SPACES.Text(5), "", None),
    ]
    wrong = []
    for space, text, action in cases:
        read = Actions(space).read(text)
        if (found := read.tolist() if hasattr(read, "tolist") else read) != action:
            wrong.append((space, text, action, found))
    assert wrong == []


@pytest.mark.parametrize("space", [SPACES.Dict({"a": SPACES.Discrete(2)}), SPACES.Discrete(5000)])
def test_actions_without_a_text_form_are_rejected(space):
    with pytest.raises(NoTextActions, match=r"Dict|5000"):
        Actions(space)


def test_slippery_lake_has_a_best_game():
    row = {"env_kwargs": {"is_slippery": True}, "seed": 3}
    assert full_reward(row) == 1.0


def test_prepare_rejects_other_environments(tmp_path, capsys):
    assert known("CartPole-v1") is None
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--env-id", "CartPole-v1", "--output", str(tmp_path / "rows.jsonl")])
    assert "'CartPole-v1' is not known" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--env-id", "Taxi-v99", "--output", str(tmp_path / "rows.jsonl")])
    assert "'Taxi-v99' cannot be created" in capsys.readouterr().err
    assert not (tmp_path / "rows.jsonl").exists()


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again = (prepare(tmp_path / name, "FrozenLake-v1", 4, 7) for name in "ab")
    assert first.read_bytes() == again.read_bytes()
    assert [row["seed"] for row in read_rows(first)] == [7, 8, 9, 10]


def test_splits_of_taxi_share_no_start(tmp_path):
    starts, taxi = [], Play("Taxi-v4", {})
    for split, count in (("train", 30), ("validation", 5)):
        rows = list(read_rows(prepare(tmp_path / "rows.jsonl", "Taxi-v4", count, split=split)))
        starts.append({taxi.reset(row["seed"]) for row in rows})
        assert len(starts[-1]) == count
    assert starts[0].isdisjoint(starts[1])
