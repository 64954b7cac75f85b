"""Rows made from personas and agendas, and the oracle's schedules for them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import DataError, UsageError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.calendar.app import CalendarServer
from resources_servers.calendar.grading import booked_in
from resources_servers.calendar.oracle import asks_for_something, solve
from resources_servers.calendar.personas import PERSONAS_FILE, read_cast
from resources_servers.calendar.prepare import prepare
from resources_servers.calendar.requirements import Requirement
from resources_servers.calendar.scheduling import schedule

FOLDER = Path(__file__).parents[1]
REPOSITORY = FOLDER.parents[1]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Two rows for every pair of persona and agenda."""
    cast = read_cast()
    count = 2 * len(cast.personas) * len(cast.agendas)
    return list(read_rows(prepare(tmp_path_factory.mktemp("rows") / "rows.jsonl", count)))


async def reward(row, *said):
    async with rollout(make_server(CalendarServer), **row) as attempt:
        return (await attempt.verify(reply(*said))).reward


@pytest.mark.slow
async def test_oracle_earns_full_reward_and_silence_none(rows):
    for row in [*rows, *read_rows(FOLDER / "data" / "example.jsonl")]:
        assert await reward(row, *solve(row)) == 1.0
        assert asks_for_something(row)
        assert await reward(row, "") == 0.0


def test_conversations_end_with_the_user(rows):
    for row in rows:
        roles = [message["role"] for message in row["responses_create_params"]["input"]]
        assert roles[:2] == ["system", "user"]
        assert roles[1:] == ["user", "assistant"] * ((len(roles) - 2) // 2) + ["user"]
    assert len({row["metadata"]["persona"] for row in rows}) == len(read_cast().personas)
    kinds = {
        each["constraint"] and each["constraint"].split()[0] for row in rows for each in row["exp_cal_state"].values()
    }
    assert kinds == {None, "before", "after", "between", "at"}


def test_expected_calendar_contains_the_last_request(rows):
    for row in rows:
        if row["metadata"]["agenda"] != "a few errands":
            continue
        said = row["responses_create_params"]["input"][-1]["content"]
        *_, last = row["exp_cal_state"].values()
        assert str(last["duration"]) in said
        assert (last["constraint"] or "") in said


def test_assistant_turns_contain_a_readable_calendar(rows):
    for row in rows:
        for message in row["responses_create_params"]["input"]:
            if message["role"] == "assistant":
                assert booked_in(message["content"]) is not None


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again, other = (prepare(tmp_path / name, 10, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_live_rows_have_the_splits_of_complete_ones(tmp_path):
    days = {
        (split, live): [
            (row["metadata"], row["exp_cal_state"])
            for row in read_rows(prepare(tmp_path / "rows.jsonl", 30, split=split, live=live))
        ]
        for split in ("train", "validation")
        for live in (True, False)
    }
    for split in ("train", "validation"):
        states = [[state for _, state in days[split, live]] for live in (True, False)]
        assert states[0] == states[1]
    assert not any(day in days["validation", False] for day in days["train", False])


def test_rollouts_cannot_be_split(tmp_path):
    with pytest.raises(UsageError, match="--split: not allowed with argument --rollouts"):
        prepare(tmp_path / "rows.jsonl", rollouts=tmp_path / "rollouts.jsonl", split="train")


def cast_with(tmp_path, change):
    cast = json.loads(PERSONAS_FILE.read_text("utf-8"))
    change(cast)
    path = tmp_path / "personas.json"
    path.write_text(json.dumps(cast))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda cast: cast["personas"][1].pop("adds"), "personas.1.adds: Field required"),
        (lambda cast: cast["personas"][0].update(adds="{what}"), "personas.0.adds: "),
        (lambda cast: cast["agendas"][0]["turns"].append("dance"), "agendas.0.turns.4: "),
        (lambda cast: cast.update(agendas=[]), "agendas: "),
        (lambda cast: cast["agendas"][0].update(max_time="10:30"), "the events of agenda 'a few errands' do not fit"),
        (lambda cast: cast["agendas"][0].update(min_time="dawn"), "the agenda 'a few errands': 'dawn' is not a time"),
    ],
)
def test_invalid_personas_are_reported_with_file_and_key(tmp_path, change, problem):
    path, output = cast_with(tmp_path, change), tmp_path / "rows.jsonl"
    with pytest.raises(DataError) as failure:
        prepare(output, 60, personas=path)
    assert str(failure.value).startswith(f"{path}: {problem}")
    assert not output.exists()


def required(key, duration, constraint=None):
    return Requirement(event_id=key, duration=duration, constraint=constraint, min_time="10:00", max_time="12:00")


def test_schedule_is_found_if_one_exists():
    cases = [
        ([required(1, 120)], {"1": 600}),
        ([required(1, 30), required(2, 60, "before 11am")], {"2": 600, "1": 660}),
        ([required(1, 30, "at 10:30am"), required(2, 30, "before 11am")], {"2": 600, "1": 630}),
        # The event with the earliest deadline must not come first, or another event would start too late.
        (
            [required(1, 60, "between 10:15am and 11:30am"), required(2, 15, "before 11:45am"), required(3, 30)],
            {"1": 615, "2": 675, "3": 690},
        ),
        ([required(1, 121)], None),
        ([required(1, 60), required(2, 61)], None),
        ([required(1, 30, "at 10:30am"), required(2, 30, "at 10:45am")], None),
    ]
    wrong = [(events, starts, found) for events, starts in cases if (found := schedule(events)) != starts]
    assert wrong == []


def test_schedule_need_not_follow_the_deadlines():
    # Event 1 has the earlier deadline, but event 2 must start first.
    events = [required(1, 30, "between 11am and 11:30am"), required(2, 60, "before 11:45am")]
    assert schedule(events) == {"2": 600, "1": 660}


def test_oracle_rejects_an_unsolvable_row():
    events = {"1": required(1, 90).model_dump(), "2": required(2, 90).model_dump()}
    with pytest.raises(DataError, match="exp_cal_state: these events do not fit"):
        solve({"exp_cal_state": events})


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, str(FOLDER / "prepare.py"), *map(str, arguments)],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_script_writes_the_requested_number_of_rows(tmp_path):
    ran = run_script("--output", tmp_path / "rows.jsonl", "--count", 3)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 3


def test_script_reports_a_missing_file_in_one_line(tmp_path):
    ran = run_script("--output", tmp_path / "rows.jsonl", "--personas", tmp_path / "none.json")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "none.json: cannot be read" in ran.stderr
