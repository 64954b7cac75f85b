"""Live rows for a simulated user, their rewording by a model, and rows made from their rollouts."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    DataError,
    ModelFailed,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
)
from nemo_gym.jsonl import read_rows, write_rows
from nemo_gym.testing import heard, make_server, on_a_port, reply, rollout
from resources_servers.calendar.app import CalendarServer
from resources_servers.calendar.oracle import solve
from resources_servers.calendar.prepare import prepare
from resources_servers.calendar.wording import keeps

FOLDER = Path(__file__).parents[1]
TEXT = re.compile(r"in your own words:\n\n(.*?)\n\nThese parts", re.DOTALL)


@pytest.fixture
def complete_and_live(tmp_path):
    """The same days as complete rows and as live rows."""
    complete = prepare(tmp_path / "complete.jsonl", 12, seed=3)
    live = prepare(tmp_path / "live.jsonl", 12, seed=3, live=True)
    return list(read_rows(complete)), list(read_rows(live))


def said_by_user(row):
    return [each["content"] for each in row["responses_create_params"]["input"] if each["role"] == "user"]


def test_live_row_splits_messages_between_input_and_script(complete_and_live):
    for complete, live in zip(*complete_and_live, strict=True):
        first, *rest = said_by_user(complete)
        assert live["responses_create_params"]["input"] == complete["responses_create_params"]["input"][:2]
        assert (said_by_user(live), live["user"]["script"]) == ([first], rest)
        assert live["exp_cal_state"] == complete["exp_cal_state"]
        assert live["user"]["persona"] == complete["metadata"]["persona"]
        for line, must_tell in zip(rest, live["metadata"]["must_tell"], strict=True):
            assert keeps(line, line, must_tell)


async def test_last_calendar_of_a_live_conversation_is_graded(complete_and_live):
    server = make_server(CalendarServer)
    for row in [*complete_and_live[1], *read_rows(FOLDER / "data" / "live_example.jsonl")]:
        talk = [part for line in row["user"]["script"] for part in ("[]", heard(line))]
        for answer, reward in ((solve(row)[0], 1.0), ("", 0.0)):
            async with rollout(server, **row) as attempt:
                assert (await attempt.verify(reply(*talk, answer))).reward == reward


ORIGINAL = "Put in the tasting between 10am and 11:45am; it takes 45 minutes."
PARTS = ["tasting", "45", "between 10am and 11:45am"]


def test_rewording_keeps_parts_and_adds_no_number():
    cases = [
        (ORIGINAL, True),
        ("TASTING, 45 minutes, BETWEEN 10am\n and 11:45am, ok?", True),
        ("The tasting takes 45 minutes.", False),
        ("Tasting 45 between 10am and 11:45am and lunch at 12", False),
        ("The cake, 45 minutes, between 10am and 11:45am.", False),
        ("", False),
        (f"{ORIGINAL} {'really ' * 100}", False),
    ]
    wrong = [(text, is_kept, found) for text, is_kept in cases if (found := keeps(text, ORIGINAL, PARTS)) != is_kept]
    assert wrong == []


class Writer(SimpleResponsesAPIModel):
    """A user model whose rewordings depend on its mood."""

    config: BaseResponsesAPIModelConfig
    mood: str = "plain"
    asked: int = 0

    async def responses(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> None:
        raise NotImplementedError

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        self.asked += 1
        text = TEXT.search(body.model_dump()["messages"][0]["content"])[1]
        if self.mood == "gone":
            raise ModelFailed("out of ink", server="writer")
        is_wrong = self.mood == "lying" or (self.mood == "careless" and self.asked % 3)
        content = f"<think>{text} 99</think>" + ("Add tennis at 7pm." if is_wrong else f'"Well: {text}"')
        return NeMoGymChatCompletion.model_validate(
            {
                "id": "1",
                "created": 0,
                "model": body.model,
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
                ],
            }
        )


def writer_in(mood):
    return make_server(Writer, name="writer").model_copy(update={"mood": mood})


async def worded_by(writer, output, **settings):
    async with on_a_port(writer) as address:
        settings |= {"user_model_url": f"{address}/v1", "user_model": "any"}
        return list(read_rows(await asyncio.to_thread(prepare, output, 6, **settings)))


@pytest.mark.parametrize("is_live", [False, True])
async def test_rewording_keeps_the_expected_calendars(tmp_path, is_live):
    plain = list(read_rows(prepare(tmp_path / "plain.jsonl", 6, live=is_live)))
    worded = await worded_by(writer_in("plain"), tmp_path / "worded.jsonl", live=is_live)
    for one, other in zip(plain, worded, strict=True):
        assert said_by_user(other) == [f"Well: {text}" for text in said_by_user(one)]
        assert other["exp_cal_state"] == one["exp_cal_state"]
        if is_live:
            assert other["user"]["script"] == [f"Well: {line}" for line in one["user"]["script"]]


async def test_unfaithful_rewording_is_retried_then_dropped(tmp_path):
    plain = list(read_rows(prepare(tmp_path / "plain.jsonl", 6)))
    lying, careless = (
        make_server(Writer, name="writer").model_copy(update={"mood": m}) for m in ("lying", "careless")
    )
    assert await worded_by(lying, tmp_path / "lying.jsonl") == plain
    worded = await worded_by(careless, tmp_path / "careless.jsonl")
    changed = [said_by_user(one) != said_by_user(other) for one, other in zip(plain, worded, strict=True)]
    assert any(changed)


async def test_failing_user_model_is_reported_with_its_cause(tmp_path):
    with pytest.raises(DataError, match=r"The user model at http://.*out of ink"):
        await worded_by(writer_in("gone"), tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()


def rollout_of(row, **changes):
    """Return user_simulation_agent's record of a live row with a perfect policy."""
    talk = [part for line in row["user"]["script"] for part in ("<think>hm</think>[]", heard(line))]
    response = reply(*talk, *solve(row)).model_dump(mode="json")
    return {**row, "response": response, "reward": 1.0, "ended_by": "goal_met", **changes}


async def test_collected_conversation_becomes_a_row(tmp_path, complete_and_live):
    complete, live = complete_and_live
    write_rows(tmp_path / "rollouts.jsonl", map(rollout_of, live))
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", rollouts=tmp_path / "rollouts.jsonl")))
    for row, original in zip(rows, complete, strict=True):
        assert said_by_user(row) == said_by_user(original)
        assert row["exp_cal_state"] == original["exp_cal_state"]
        roles = [each["role"] for each in row["responses_create_params"]["input"]]
        assert roles == [each["role"] for each in original["responses_create_params"]["input"]]
        assert "<think>" not in json.dumps(row)
        async with rollout(make_server(CalendarServer), **row) as attempt:
            assert (await attempt.verify(reply(*solve(row)))).reward == 1.0


def unfaithful(row):
    line = row["user"]["script"][0]
    return {**row, "user": {**row["user"], "script": [f"{line} And at 3pm tea.", *row["user"]["script"][1:]]}}


def test_only_complete_rewarded_conversations_become_rows(tmp_path, complete_and_live):
    _, (first, second, third, fourth, *_) = complete_and_live
    unfinished = rollout_of(third)
    unfinished["response"]["output"] = unfinished["response"]["output"][:1]
    rollouts = [
        rollout_of(first),
        rollout_of(second, reward=0.0),
        unfinished,
        {**rollout_of(unfaithful(fourth)), "user": fourth["user"]},
    ]
    path = tmp_path / "rollouts.jsonl"
    write_rows(path, rollouts)
    (row,) = read_rows(prepare(tmp_path / "rows.jsonl", rollouts=path))
    assert row["exp_cal_state"] == first["exp_cal_state"]
    write_rows(path, rollouts[1:])
    with pytest.raises(DataError, match="no rollout has the reward 1 and a user that followed its script"):
        prepare(tmp_path / "none.jsonl", rollouts=path)
    assert not (tmp_path / "none.jsonl").exists()


def test_other_rows_are_rejected_with_file_and_line(tmp_path, complete_and_live):
    complete, live = complete_and_live
    path = tmp_path / "rollouts.jsonl"
    write_rows(path, [rollout_of(live[0]), complete[0]])
    with pytest.raises(DataError, match=re.escape(f"{path}:2: user, response, reward missing")):
        prepare(tmp_path / "rows.jsonl", rollouts=path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--user-model-url", "http://127.0.0.1:9/v1"], "also name the model"),
        (["--rollouts", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
        (["--live"], ""),
    ],
)
def test_script_reports_a_problem_in_one_line(tmp_path, words, problem):
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "prepare.py"), "--output", str(tmp_path / "rows.jsonl"), "--count", "2", *words],
        env={"PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == ((1, 1) if problem else (0, 0))
    assert problem in ran.stderr
