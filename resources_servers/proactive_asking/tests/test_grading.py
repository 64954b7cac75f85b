"""The rewards of asking, guessing and needless questions, and the comparison of bookings."""

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

ASK, ANSWER = "At what time?", heard("At 19:30.")
BOOK = call("book_table", **WANTED)
WRONG = call("book_table", **{**WANTED, "time": "20:00"})
OTHER = call("book_room", room="Cedar", date="2025-03-08", start_time="19:30", duration_minutes=30)
REJECTED = call("book_table", **{**WANTED, "time": "half past seven"})


CLAIMED = ANSWER.model_copy(update={"claimed_by_program": "user"})


def cancel(number):
    return call("cancel_booking", booking_id=number)


async def play(*items, row=None, **settings):
    """Play a rollout like an agent: execute the calls and append their outputs."""
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
    "asked, then booked": ([ASK, ANSWER, BOOK, "Done."], 1.0),
    "asked in other words": (["Please tell me WHAT\n HOUR suits you.", ANSWER, BOOK], 1.0),
    "asked and confirmed in one message": (["For 4 people, and at what time?", ANSWER, BOOK], 1.0),
    "read first": ([call("list_bookings"), ASK, ANSWER, call("list_bookings"), BOOK], 1.0),
    "a rejected booking does not count": ([REJECTED, ASK, ANSWER, REJECTED, BOOK], 1.0),
    "booked wrongly after the answer, then corrected": ([ASK, ANSWER, WRONG, cancel(1), BOOK], 1.0),
    "messages after the booking are free": ([ASK, ANSWER, BOOK, "Anything else?", heard("No."), "Bye."], 1.0),
    "guessed": ([BOOK, "Done."], 0.0),
    "asked without waiting": ([ASK, BOOK, "Done."], 0.0),
    "asked after booking": ([BOOK, ASK, ANSWER, "Done."], 0.0),
    "guessed, asked, corrected": ([WRONG, ASK, ANSWER, cancel(1), BOOK], 0.0),
    "booked something else first": ([OTHER, ASK, ANSWER, cancel(1), BOOK], 0.0),
    "asked only in thought": (["<think>At what time?</think>Shall I?", heard("Yes."), BOOK], 0.0),
    "asked with part of a word": (["Sometimes it is full?", heard("Hm."), BOOK], 0.0),
    "asked for something else": (["How many guests?", heard("Four."), BOOK], 0.0),
    "answered by the program instead of the user": ([ASK, CLAIMED, BOOK], 0.0),
    "answered without being asked": ([heard("At 19:30."), BOOK], 0.0),
    "asked and ignored the answer": ([ASK, ANSWER, WRONG], 0.0),
    "asked and booked nothing": ([ASK, ANSWER, "Done."], 0.0),
    "booked twice": ([ASK, ANSWER, BOOK, BOOK], 0.0),
    "booked something in addition": ([ASK, ANSWER, BOOK, OTHER], 0.0),
    "another kind": ([ASK, ANSWER, OTHER], 0.0),
    "booked and cancelled": ([ASK, ANSWER, BOOK, cancel(1)], 0.0),
    "cancelled an unknown booking": ([cancel(7), ASK, ANSWER, BOOK, cancel(7)], 1.0),
    "nothing": ([""], 0.0),
}


async def test_conversation_earns_its_reward():
    wrong = []
    for case, (items, reward) in CASES.items():
        if (found := (await play(*items)).reward) != reward:
            wrong.append((case, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("needless", "penalty", "reward"), [(0, 0.1, 1.0), (1, 0.1, 0.9), (2, 0.25, 0.5), (3, 0.5, 0.0), (2, 0.0, 1.0)]
)
async def test_needless_questions_cost_their_penalty(needless, penalty, reward):
    others = ["How many guests?", heard("Four.")] * needless
    for course in ([*others, ASK, ANSWER], [ASK, ANSWER, *others]):
        graded = await play(*course, BOOK, needless_question_penalty=penalty)
        assert graded.reward == pytest.approx(reward)
        assert (graded.is_booked, graded.was_asked, graded.needless_questions) == (True, True, needless)
    late = await play(ASK, ANSWER, BOOK, *others, needless_question_penalty=penalty)
    assert (late.reward, late.needless_questions) == (1.0, 0)


async def test_guess_earns_the_configured_reward():
    assert (await play(BOOK, guess_reward=0.25)).reward == 0.25
    assert (await play(WRONG, guess_reward=0.25)).reward == 0.0
    assert (await play(ASK, ANSWER, BOOK, guess_reward=0.25)).reward == 1.0


async def test_complete_request_needs_no_question():
    assert (await play(BOOK, row=COMPLETE)).reward == 1.0
    asked = await play(ASK, ANSWER, BOOK, row=COMPLETE)
    assert (asked.reward, asked.was_asked, asked.needless_questions) == (0.9, False, 1)
    assert (await play(WRONG, row=COMPLETE)).reward == 0.0


async def test_every_argument_must_be_correct():
    cases = [
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
    ]
    wrong = [
        (field, value, reward, found)
        for field, value, reward in cases
        if (found := (await play(ASK, ANSWER, call("book_table", **{**WANTED, field: value}))).reward) != reward
    ]
    assert wrong == []


async def test_call_without_output_does_not_count():
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        assert (await attempt.verify(reply(ASK, ANSWER, BOOK))).reward == 0.0


@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", '{"booking_id": "x"}', '{"booking_id": 1, "x": 1}'])
async def test_calls_with_invalid_arguments_change_nothing(arguments):
    broken = [call(name).model_copy(update={"arguments": arguments}) for name in ("book_table", "cancel_booking", "x")]
    course = [ASK, ANSWER, BOOK, *broken]
    output = []
    for number, item in enumerate(reply(*course).output):
        dumped = item.model_dump(mode="json")
        if item.type == "function_call":
            output += [
                {**dumped, "call_id": str(number)},
                {"type": "function_call_output", "call_id": str(number), "output": "?"},
            ]
        else:
            output.append(dumped)
    response = type(reply()).model_validate({**reply().model_dump(mode="json"), "output": output})
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        assert (await attempt.verify(response)).reward == 1.0


async def test_tools_return_their_bookings():
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


async def test_number_of_bookings_is_limited():
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
async def test_invalid_row_is_rejected_at_seeding(change, where):
    with pytest.raises(DataError, match=f"the row's .*{where}.* seed_session of "):
        await play(BOOK, row={**ROW, **change})
    async with rollout(make_server(ProactiveAskingServer), **ROW) as attempt:
        with pytest.raises(DataError, match=f"the row's .*{where}.* verify of "):
            await attempt.verify(reply(BOOK), **change)


@pytest.mark.parametrize("settings", [{"guess_reward": 1.0}, {"needless_question_penalty": -1}])
def test_invalid_settings_are_rejected(settings):
    with pytest.raises(DataError, match=next(iter(settings))):
        make_server(ProactiveAskingServer, **settings)
