"""Our environments in a loop for Gymnasium: a game, tool calls, an answer, a running server, and failures."""

from __future__ import annotations

import pytest

from nemo_gym import gym
from nemo_gym.errors import InvalidTask, UsageError
from tests.each_case import each_case

pytestmark = pytest.mark.slow

COUNTER = "resources_servers/example_session_state_mgmt"
COUNTER_CONFIGS = (
    f"{COUNTER}/configs/example_session_state_mgmt.yaml",
    "responses_api_models/sample_model/configs/sample_model.yaml",
)


@pytest.fixture(scope="module")
def counter():
    with gym.make(COUNTER) as env:
        yield env


def add(count):
    return {"name": "increment_counter", "arguments": {"count": count}}


def test_game_is_played_by_its_steps():
    with gym.make("resources_servers/blackjack") as env:
        seen = []
        for _ in range(2):
            observation, info = env.reset(seed=3)
            assert "blackjack" in observation
            taken = env.step("stand")
            seen.append((observation, info["row"], taken))
            assert taken[1] in (-1.0, 0.0, 1.0)
            assert taken[2:4] == (True, False)
        assert seen[0] == seen[1]
        with pytest.raises(UsageError, match="the episode has ended"):
            env.step("stand")


def test_tools_are_called_and_the_last_text_is_the_answer(counter):
    for first, reward in ((2, 1.0), (3, 0.0)):
        observation, info = counter.reset(options={"index": 0})
        assert observation.endswith("Bring the counter to 5, then tell me its value.")
        assert {tool["name"] for tool in info["tools"]} == {"increment_counter", "get_counter_value"}
        assert counter.step(add(first))[:4] == ('{"success":true}', 0.0, False, False)
        counter.step(add(3))
        assert counter.step({"name": "get_counter_value"})[0] == f'{{"count":{first + 3}}}'
        assert counter.step("It is done.")[:4] == ("", reward, True, False)


def test_rows_come_in_order_and_an_unfinished_episode_is_left(counter):
    counter.reset(options={"index": 1})
    counter.step(add(100))
    _, info = counter.reset()
    _, again = counter.reset(options={"index": 2})
    assert info["row"] == again["row"]
    # The counter of the earlier episode is gone.
    count = counter.step({"name": "get_counter_value"})[0]
    assert count == f'{{"count":{again["row"].get("initial_count", 0)}}}'


def test_answer_without_tools_is_graded():
    with gym.make("resources_servers/mcqa") as env:
        for answer, reward in ((r"\boxed{C}", 1.0), (r"\boxed{A}", 0.0), ("", 0.0)):
            observation, _ = env.reset(options={"index": 0})
            assert "D: 19" in observation
            assert env.step(answer)[1] == reward


def test_server_of_a_run_is_played(shared_workplace):
    run = shared_workplace.start_servers(f"+config_paths=[{','.join(COUNTER_CONFIGS)}]")
    row = {"responses_create_params": {"input": "Count."}, "initial_count": 4, "expected_count": 5}
    with gym.make(run.head, [row]) as env:
        assert env.reset()[0] == "Count."
        env.step(add(1))
        assert env.step("5")[1] == 1.0
    # The server goes on.
    with gym.make(run.head, [row]) as env:
        env.reset()
        assert env.step("4")[1] == 0.0
    run.end()


def test_row_that_the_server_rejects_is_an_error(counter):
    with pytest.raises(InvalidTask, match="initial_count"):
        counter.reset(options={"row": {"responses_create_params": {"input": ""}, "initial_count": "many"}})
    with pytest.raises(UsageError, match="has not begun"):
        counter.step("done")


@each_case(
    ("source", "error", "message"),
    [
        ("http://127.0.0.1:9", UsageError, "http://127.0.0.1:9 has no data/example.jsonl. Pass the tasks as rows="),
        ("resources_servers/blackjac", UsageError, "the folder resources_servers/blackjac does not exist"),
    ],
)
def test_source_without_tasks_is_named(source, error, message):
    with pytest.raises(error, match=message):
        gym.make(source)
