"""What asking, guessing and needless questions earn, and which bookings count as the expected one."""

import json

import pytest

from nemo_gym import DataError
from nemo_gym.testing import call, heard, make_server, reply, rollout
from resources_servers.proactive_asking.app import ProactiveAskingServer
from resources_servers.proactive_asking.bookings import MOST_BOOKINGS

WANTED = {"restaurant": "Blue Heron", "date": "2025-03-08", "time": "19:30", "guests": 4}
ROW = {
    "expected_booking": {"tool": "book_table", "arguments": WANTED},
    "missing_detail": {"name": "time", "asked_with": ["time", "what hour"]},
}
COMPLETE = {**ROW, "missing_detail": None}

ASK, TOLD = "At what time?", heard("At 19:30.")
BOOK = call("book_table", **WANTED)
WRONG = call("book_table", **{**WANTED, "time": "20:00"})
OTHER = call("book_room", room="Cedar", date="2025-03-08", start_time="19:30", duration_minutes=30)
REFUSED = call("book_table", **{**WANTED, "time": "half past seven"})


def cancel(number):
    return call("cancel_booking", booking_id=number)


async def play(*items, row=None, **settings):
    """Everything happens as an agent would do it: calls are made, their answers stand behind them."""
    async with rollout(make_server(ProactiveAskingServer, **settings), **(row or ROW)) as attempt:
        output = []
        for number, item in enumerate(reply(*items).output):
            if item.type != "function_call":
                output.append(item.model_dump(mode="json"))
                continue
            output.append({**item.model_dump(mode="json"), "call_id": str(number)})
            answer = await attempt.send(item)
            output.append({"type": "function_call_output", "call_id": str(number), "output": answer})
        response = reply().model_copy(update={"output": output})
        return await attempt.verify(type(response).model_validate(response.model_dump(mode="json", warnings=False)))


CASES = {
    "asked, then booked": ([ASK, TOLD, BOOK, "Done."], 1.0),
    "asked in other words": (["Please tell me WHAT\n HOUR suits you.", TOLD, BOOK], 1.0),
    "asked beside what was known": (["For 4 people, and at what time?", TOLD, BOOK], 1.0),
    "read first": ([call("list_bookings"), ASK, TOLD, call("list_bookings"), BOOK], 1.0),
    "a refused booking is none": ([REFUSED, ASK, TOLD, REFUSED, BOOK], 1.0),
    "booked wrongly after the answer, then mended": ([ASK, TOLD, WRONG, cancel(1), BOOK], 1.0),
    "a word after the booking is free": ([ASK, TOLD, BOOK, "Anything else?", heard("No."), "Bye."], 1.0),
    "guessed": ([BOOK, "Done."], 0.0),
    "asked and not waited": ([ASK, BOOK, "Done."], 0.0),
    "asked after booking": ([BOOK, ASK, TOLD, "Done."], 0.0),
    "guessed, asked, mended": ([WRONG, ASK, TOLD, cancel(1), BOOK], 0.0),
    "booked something else first": ([OTHER, ASK, TOLD, cancel(1), BOOK], 0.0),
    "asked only in thought": (["<think>At what time?</think>Shall I?", heard("Yes."), BOOK], 0.0),
    "asked with part of a word": (["Sometimes it is full?", heard("Hm."), BOOK], 0.0),
    "asked for something else": (["How many guests?", heard("Four."), BOOK], 0.0),
    "told without being asked": ([heard("At 19:30."), BOOK], 0.0),
    "asked and not used": ([ASK, TOLD, WRONG], 0.0),
    "asked and booked nothing": ([ASK, TOLD, "Done."], 0.0),
    "booked twice": ([ASK, TOLD, BOOK, BOOK], 0.0),
    "booked beside it": ([ASK, TOLD, BOOK, OTHER], 0.0),
    "another kind": ([ASK, TOLD, OTHER], 0.0),
    "booked and cancelled": ([ASK, TOLD, BOOK, cancel(1)], 0.0),
    "cancelled what is not there": ([cancel(7), ASK, TOLD, BOOK, cancel(7)], 1.0),
    "nothing": ([""], 0.0),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_reward_of_a_conversation(case):
    items, reward = CASES[case]
    assert (await play(*items)).reward == reward


@pytest.mark.parametrize(
    ("needless", "penalty", "reward"), [(0, 0.1, 1.0), (1, 0.1, 0.9), (2, 0.25, 0.5), (3, 0.5, 0.0), (2, 0.0, 1.0)]
)
async def test_needless_questions_cost_their_penalty_and_never_more_than_all(needless, penalty, reward):
    others = ["How many guests?", heard("Four.")] * needless
    for course in ([*others, ASK, TOLD], [ASK, TOLD, *others]):
        graded = await play(*course, BOOK, needless_question_penalty=penalty)
        assert graded.reward == pytest.approx(reward)
        assert (graded.is_booked, graded.was_asked, graded.needless_questions) == (True, True, needless)
    late = await play(ASK, TOLD, BOOK, *others, needless_question_penalty=penalty)
    assert (late.reward, late.needless_questions) == (1.0, 0)


async def test_a_guess_earns_what_the_config_gives_for_it():
    assert (await play(BOOK, guess_reward=0.25)).reward == 0.25
    assert (await play(WRONG, guess_reward=0.25)).reward == 0.0
    assert (await play(ASK, TOLD, BOOK, guess_reward=0.25)).reward == 1.0


async def test_of_a_complete_request_nothing_has_to_be_asked():
    assert (await play(BOOK, row=COMPLETE)).reward == 1.0
    asked = await play(ASK, TOLD, BOOK, row=COMPLETE)
    assert (asked.reward, asked.was_asked, asked.needless_questions) == (0.9, False, 1)
    assert (await play(WRONG, row=COMPLETE)).reward == 0.0


@pytest.mark.parametrize(
    ("field", "value", "reward"),
    [
        ("restaurant", " blue  HERON ", 1.0),
        ("restaurant", "Blue Hero", 0.0),
        ("guests", "4", 1.0),
        ("guests", 4.0, 1.0),
        ("guests", 5, 0.0),
        ("guests", 4.5, 0.0),
        ("date", "2025-03-09", 0.0),
        ("date", "8 March 2025", 0.0),
        ("time", "7:30", 0.0),
        ("tip", 5, 0.0),
    ],
)
async def test_every_argument_has_to_be_right(field, value, reward):
    assert (await play(ASK, TOLD, call("book_table", **{**WANTED, field: value}))).reward == reward


async def test_a_call_that_nobody_answered_was_not_made():
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        assert (await attempt.verify(reply(ASK, TOLD, BOOK))).reward == 0.0


@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", '{"booking_id": "x"}', '{"booking_id": 1, "x": 1}'])
async def test_calls_that_cannot_be_read_change_nothing(arguments):
    broken = [call(name).model_copy(update={"arguments": arguments}) for name in ("book_table", "cancel_booking", "x")]
    course = [ASK, TOLD, BOOK, *broken]
    output = []
    for number, item in enumerate(reply(*course).output):
        told = item.model_dump(mode="json")
        if item.type == "function_call":
            output += [
                {**told, "call_id": str(number)},
                {"type": "function_call_output", "call_id": str(number), "output": "?"},
            ]
        else:
            output.append(told)
    response = type(reply()).model_validate({**reply().model_dump(mode="json"), "output": output})
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        assert (await attempt.verify(response)).reward == 1.0


async def test_the_tools_tell_what_they_have_done():
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        assert json.loads(await attempt.call("book_table", **WANTED)) == {"booking_id": 1, **WANTED}
        assert json.loads(await attempt.call("list_bookings")) == [{"booking_id": 1, **WANTED}]
        assert await attempt.call("cancel_booking", booking_id=2) == (
            "Error: There is no such booking. The bookings are: [1]."
        )
        assert json.loads(await attempt.call("cancel_booking", booking_id=1))["cancelled"]["booking_id"] == 1
        assert json.loads(await attempt.call("list_bookings")) == []
        assert (await attempt.call("cancel_booking", booking_id=1)).endswith("The bookings are: none.")
        assert json.loads(await attempt.call("book_table", **WANTED))["booking_id"] == 2


async def test_a_policy_that_books_in_a_loop_is_told_to_stop():
    items = [BOOK] * (MOST_BOOKINGS + 5)
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        answers = [await attempt.send(item) for item in items]
        assert answers[MOST_BOOKINGS].startswith(f"Error: There were {MOST_BOOKINGS} bookings")
        assert len(json.loads(await attempt.call("list_bookings"))) == MOST_BOOKINGS


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"expected_booking": {"tool": "book_tables", "arguments": {}}}, "tool"),
        ({"expected_booking": {"tool": "book_table", "arguments": {**WANTED, "time": "late"}}}, "time"),
        ({"missing_detail": {"name": "time", "asked_with": []}}, "asked_with"),
        ({"missing_detail": {"name": "time", "asked_with": ["time", ""]}}, "asked_with"),
        ({"missing_detail": {"name": "time", "asked_with": [" \n"]}}, "asked_with"),
    ],
)
async def test_a_row_that_cannot_be_graded_is_refused_with_the_field_before_the_rollout_begins(change, where):
    with pytest.raises(DataError, match=f"/seed_session answered 422.*{where}"):
        await play(BOOK, row={**ROW, **change})
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        with pytest.raises(DataError, match=f"422.*{where}"):
            await attempt.verify(reply(BOOK), **change)


@pytest.mark.parametrize("settings", [{"guess_reward": 1.0}, {"needless_question_penalty": -1}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(DataError, match=next(iter(settings))):
        make_server(ProactiveAskingServer, **settings)
