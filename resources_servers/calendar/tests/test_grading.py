"""Correct, wrong and unreadable calendars."""

import json
import re

import pytest

from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.calendar.app import CalendarServer
from resources_servers.calendar.requirements import Requirement, minutes_of

WINDOW = {"min_time": "10:00", "max_time": "16:00"}


def required(key, duration=30, constraint=None, **window):
    return {"event_id": key, "duration": duration, "constraint": constraint, **WINDOW, **window}


def state(*events):
    return {str(each["event_id"]): each for each in events}


def entry(key, start, duration=30, **more):
    return {"event_id": key, "event_name": "An event", "start_time": start, "duration": duration, **more}


def calendar(*entries):
    return json.dumps(list(entries))


async def graded(expected, *said):
    row = {"exp_cal_state": state(*expected)}
    async with rollout(make_server(CalendarServer), **row) as attempt:
        return await attempt.verify(reply(*said))


async def reward(expected, *said):
    return (await graded(expected, *said)).reward


async def test_event_must_meet_constraint_and_day_window():
    cases = [
        (None, "10:00", 1.0),
        (None, "15:30", 1.0),
        (None, "09:59", 0.0),
        (None, "15:31", 0.0),
        ("before 11am", "10:30", 1.0),
        ("before 11am", "10:31", 0.0),
        ("after 2pm", "14:00", 1.0),
        ("after 2pm", "13:59", 0.0),
        ("after 2:15pm", "14:15", 1.0),
        ("between 10am and 11:45am", "11:15", 1.0),
        ("between 10am and 11:45am", "11:16", 0.0),
        ("between 11am and 11:45am", "10:59", 0.0),
        ("at 11:15am", "11:15", 1.0),
        ("at 11:15am", "11:14", 0.0),
        ("at 11:15am", "11:16", 0.0),
        ("At 12pm", "12:00", 1.0),
        ("before 13:00", "12:30", 1.0),
        # The day's window applies in addition to the constraint.
        ("before 10:15am", "09:45", 0.0),
        ("after 3pm", "15:45", 0.0),
    ]
    wrong = [
        (constraint, start, expected, found)
        for constraint, start, expected in cases
        if (found := await reward([required(1, constraint=constraint)], calendar(entry(1, start)))) != expected
    ]
    assert wrong == []


TWO = [required(1), required(2, 60)]
MET = "the calendar meets every requirement"


async def test_only_expected_events_without_overlaps_are_rewarded():
    cases = [
        ([entry(1, "10:00"), entry(2, "10:30", 60)], MET),
        ([entry(2, "10:30", 60), entry(1, "10:00")], MET),
        ([entry(1, "10:00"), entry(2, "10:29", 60)], "events 1 and 2 overlap"),
        ([entry(2, "10:00", 60), entry(1, "10:15")], "events 2 and 1 overlap"),
        ([entry(1, "10:00")], "event 2 is missing"),
        ([entry(1, "10:00"), entry(1, "11:00")], "event 2 is missing"),
        (
            [entry(1, "10:00"), entry(2, "11:00", 60), entry(3, "12:00")],
            "the calendar has 3 events, and 2 are expected",
        ),
        ([entry(1, "10:00"), entry(3, "11:00", 60)], "event 2 is missing"),
        ([entry(1, "10:00", 60), entry(2, "11:00", 60)], "event 1 has 60 minutes, and 30 are expected"),
        ([entry(1, "10:00"), entry(2, "11:00", 30)], "event 2 has 30 minutes, and 60 are expected"),
        ([entry(1, "09:30"), entry(2, "11:00", 60)], "event 1 is from 09:30 to 10:00, outside of 10:00 to 16:00"),
        ([], "the last message does not contain a list of valid events"),
    ]
    wrong = []
    for entries, why in cases:
        found = await graded(TWO, calendar(*entries))
        if (found.reward, found.why) != (float(why == MET), why):
            wrong.append((entries, why, found.why))
    assert wrong == []


async def test_first_list_counts_and_thinking_invalidates_it():
    cases = [
        ("Here you are:\n```json\n{}\n```", 1.0),
        ("[1] I noted it. {}", 1.0),
        ("[{{broken}}] no: {}", 1.0),
        ("{} and not [{{}}]", 1.0),
        ("[{{}}] but {}", 0.0),
        ("<think>hm</think>{}", 0.0),
        ("<think>{}", 0.0),
        ("hm</think>{}", 1.0),
    ]
    wrong = [
        (said, expected, found)
        for said, expected in cases
        if (found := await reward([required(1)], said.format(calendar(entry(1, "10:00"))))) != expected
    ]
    assert wrong == []


async def test_only_the_last_message_counts():
    right, wrong = calendar(entry(1, "10:00")), calendar(entry(1, "9:00"))
    assert await reward([required(1)], wrong, right) == 1.0
    assert await reward([required(1)], right, wrong) == 0.0
    assert await reward([required(1)], right, "Done.") == 0.0


async def test_ids_and_durations_may_be_equivalent_values():
    cases = [
        entry("1", "10:00"),
        entry(1.0, "10:00", 30.0),
        entry(1, "10:00", event_name=None),
        entry(1, " 10:00 "),
        {"event_id": 1, "start_time": "10:00", "duration": 30},
    ]
    wrong = [(written, found) for written in cases if (found := await reward([required(1)], calendar(written))) != 1.0]
    assert wrong == []


async def test_invalid_entry_earns_nothing():
    cases = [
        {},
        entry(None, "10:00"),
        entry(True, "10:00"),
        entry([1], "10:00"),
        entry(1, "10am"),
        entry(1, "25:00"),
        entry(1, "10:60"),
        entry(1, 600),
        entry(1, None),
        entry(1, "10:00", "30"),
        entry(1, "10:00", None),
        entry(1, "10:00", True),
        entry(1, "10:00", 30.5),
        entry(1, "10:00", -30),
        entry(1, "10:00", 10**300),
        entry(1, "10:00", float("inf")),
        entry(1, "10:00", float("nan")),
        entry(10**300, "10:00"),
    ]
    wrong = []
    for written in cases:
        found = (
            await reward([required(1)], calendar(written)),
            await reward([required(1), required(2)], calendar(entry(2, "11:00"), written)),
        )
        if found != (0.0, 0.0):
            wrong.append((written, found))
    assert wrong == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        "10:00",
        "[[1]]",
        calendar(),
        '[{"event_id": ' + "9" * 5000 + "}]",
        '[{"a":' * 50_000,
        '[{"a":[' * 50_000 + "]" * 50_000,
        "[ " * 150_000,
        "[" + " " * 300_000,
    ],
)
async def test_text_without_a_calendar_earns_nothing_quickly(said):
    assert await reward([required(1)], said) == 0.0


async def test_any_answer_is_right_without_expected_events():
    assert await reward([], "<think>") == 1.0
    assert await reward([], "") == 1.0


def test_times_of_both_clocks_are_parsed():
    cases = [("12am", 0), ("12:30am", 30), ("12pm", 720), ("1pm", 780), ("11:59PM", 1439), ("9", 540), ("16:05", 965)]
    wrong = [(text, minutes, found) for text, minutes in cases if (found := minutes_of(text)) != minutes]
    assert wrong == []


def test_invalid_time_is_rejected():
    cases = ["", "noon", "13pm", "0am", "24:01", "10:75", "10:5", "-1:00"]
    wrong = []
    for text in cases:
        try:
            wrong.append((text, minutes_of(text)))
        except ValueError as error:
            if not re.search("time", str(error)):
                wrong.append((text, str(error)))
    assert wrong == []


def test_invalid_requirement_is_rejected_with_the_reason():
    cases = [
        ({"constraint": "soon"}, "the constraint 'soon' cannot be read"),
        ({"constraint": "before 10am and 11am"}, "cannot be read"),
        ({"constraint": "between 10am"}, "cannot be read"),
        ({"constraint": "at noon"}, "'noon' is not a time"),
        ({"min_time": "early"}, "min_time"),
        ({"duration": 0}, "duration"),
        ({"duration": None}, "duration"),
    ]
    wrong = []
    for fields, where in cases:
        try:
            wrong.append((fields, where, Requirement.model_validate({**required(1), **fields})))
        except ValueError as error:
            if not re.search(where, str(error)):
                wrong.append((fields, where, str(error)))
    assert wrong == []


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ({}, "exp_cal_state"),
        ({"exp_cal_state": state(required(1, constraint="soon"))}, "the constraint 'soon' cannot be read"),
        ({"exp_cal_state": {"1": {**required(1), "min_time": "early"}}}, "min_time"),
        ({"exp_cal_state": {"1": required(1), "2": required("1")}}, "two events have the same event_id: 1, 1"),
    ],
)
async def test_invalid_row_is_rejected_at_seeding(row, where):
    body = {"responses_create_params": {"input": "Hello."}, **row}
    async with serving(make_server(CalendarServer)) as client:
        seeded = await client.post("/seed_session", json=body)
        verified = await client.post("/verify", json={**body, "response": reply("[]").model_dump(mode="json")})
    for answer in (seeded, verified):
        assert (answer.status_code, where in answer.text) == (422, True)
