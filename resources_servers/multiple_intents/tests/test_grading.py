"""Rewards by wish: partial credit, damage, withdrawn wishes and answers by turn."""

import json

import pytest

from nemo_gym import DataError, InvalidTask
from nemo_gym.testing import call, heard, make_server, reply, rollout
from resources_servers.multiple_intents.app import MultipleIntentsServer
from resources_servers.workplace_assistant.company import made_up_company

GRETA, LARS = "greta.lindqvist@brightharbor.example", "lars.henriksen@brightharbor.example"
EVENT, OTHER_EVENT, *_ = (row for row in made_up_company().events.rows.values() if row["event_start"] > "2023-12-01")
CUSTOMER = next(row for row in made_up_company().customers.rows.values() if row["status"] == "Lead")


def update(row, field, value):
    return call("calendar_update_event", event_id=row["event_id"], field=field, new_value=value)


SEND = call("email_send_email", recipient=GRETA, subject="Hello", body="How are you?")
MOVE = update(EVENT, "event_start", "2023-12-15 09:00:00")
LENGTHEN = update(EVENT, "duration", "45")
CANCEL = call("calendar_delete_event", event_id=OTHER_EVENT["event_id"])
PLOT = call(
    "analytics_create_plot",
    time_min="2023-11-01",
    time_max="2023-11-02",
    value_to_plot="total_visits",
    plot_type="bar",
)
WIN = call(
    "customer_relationship_manager_update_customer",
    customer_id=CUSTOMER["customer_id"],
    field="status",
    new_value="Won",
)
LOSE_AGAIN = call(
    "customer_relationship_manager_update_customer",
    customer_id=CUSTOMER["customer_id"],
    field="status",
    new_value="Lead",
)


def truth(*calls):
    return [{"name": each.name, "arguments": each.arguments} for each in calls]


ROW = {
    "wishes": [
        {"kind": "add", "turn": 1, "calls": truth(SEND)},
        {"kind": "change", "turn": 1, "calls": truth(MOVE, LENGTHEN)},
        {"kind": "cancel", "turn": 1, "calls": truth(CANCEL)},
        {"kind": "ask", "turn": 1, "number": 1, "form": "number", "answer": "4", "unit": "meetings"},
    ],
    "withdrawn_calls": truth(WIN),
    "subset": "withdrawn",
}
ALL = (SEND, MOVE, LENGTHEN, CANCEL)
MADE = f"{1 + max(int(row_id) for row_id in made_up_company().emails.rows):08}"
UNSEND = call("email_delete_email", email_id=MADE)


async def play(*items, row=ROW, **settings):
    """Make the calls in order and return the graded rollout."""
    async with rollout(make_server(MultipleIntentsServer, **settings), **row) as attempt:
        for item in reply(*items).output:
            if item.type == "function_call":
                await attempt.send(item)
        return await attempt.verify(reply(*items))


CASES = {
    "all": ([*ALL, "Q1: 4"], 1.0, []),
    "all in another order": ([CANCEL, LENGTHEN, SEND, MOVE, "Q1: 4 meetings"], 1.0, []),
    "all by a detour": ([update(EVENT, "duration", "50"), *ALL, "Q1: 4"], 1.0, []),
    "a wrong answer": ([*ALL, "Q1: 5"], 0.75, []),
    "no answer": ([*ALL, "Done."], 0.75, []),
    "half of a wish": ([SEND, MOVE, CANCEL, "Q1: 4"], 0.75, []),
    "a wrong value of the right field": (
        [SEND, update(EVENT, "event_start", "2023-12-14 09:00:00"), LENGTHEN, CANCEL, "Q1: 4"], 0.75, [],
    ),
    "only the answer": (["Q1: 4"], 0.25, []),
    "nothing": ([""], 0.0, []),
    "withdrawn and undone": ([WIN, *ALL, LOSE_AGAIN, "Q1: 4"], 1.0, []),
    "withdrawn but done": ([WIN, *ALL, "Q1: 4"], 0.0, [f"customers {CUSTOMER['customer_id']} status won"]),
    "another field of the same row": (
        [*ALL, update(EVENT, "event_name", "pancakes"), "Q1: 4"], 0.0,
        [f"events {EVENT['event_id']} event_name pancakes"],
    ),
    "deleted instead of moved": (
        [SEND, call("calendar_delete_event", event_id=EVENT["event_id"]), CANCEL, "Q1: 4"], 0.0,
        [f"events {EVENT['event_id']} deleted"],
    ),
    "changed instead of deleted": (
        [SEND, MOVE, LENGTHEN, update(OTHER_EVENT, "duration", "45"), "Q1: 4"], 0.0,
        [f"events {OTHER_EVENT['event_id']} duration 45"],
    ),
    "sent twice": (
        [*ALL, SEND, "Q1: 4"], 0.0,
        [f"emails outbox, {GRETA}, hello, 2023-11-30 00:00:00, how are you?"],
    ),
    "sent twice, one deleted": ([*ALL, SEND, UNSEND, "Q1: 4"], 1.0, []),
    "a needless plot": (
        [*ALL, PLOT, "Q1: 4"], 0.0, ["plots plots/2023-11-01_2023-11-02_total_visits_bar.png"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("items", "reward", "damage"), CASES.values(), ids=CASES)
async def test_reward_is_the_share_of_fulfilled_wishes(items, reward, damage):
    graded = await play(*items)
    assert (graded.reward, graded.damage) == (reward, damage)
    assert graded.all_done == (reward == 1.0)


async def test_components_show_each_kind_of_wish():
    graded = await play(SEND, MOVE, WIN, CANCEL, "Q1: 4")
    assert graded.wishes_done == [True, False, True, True]
    expected = {"added": 1, "changed": 0, "cancelled": 1, "answered": 1, "nothing_else": 0, "no_trace": 0}
    assert graded.reward_components == expected
    assert {name: getattr(graded, name) for name in expected} == expected
    graded = await play("", row={"wishes": ROW["wishes"][:1]})
    assert graded.reward_components == {"added": 0, "nothing_else": 1}


async def test_why_names_missed_wishes_and_damage():
    assert (await play(*ALL, "Q1: 4")).why == "4 of 4 wishes are fulfilled"
    found = (await play(SEND, MOVE, WIN, CANCEL, "Q1: 4")).why
    asked_by_nobody = f"no wish asks for: customers {CUSTOMER['customer_id']} status 'won'"
    assert found == f"3 of 4 wishes are fulfilled, not 2 (change); {asked_by_nobody}"


async def test_damage_costs_the_configured_penalty():
    assert (await play(*ALL, WIN, "Q1: 4", damage_penalty=0.25)).reward == 0.75
    assert (await play(SEND, WIN, "", damage_penalty=0.5)).reward == 0.0


async def test_one_email_fulfils_only_one_of_two_equal_wishes():
    row = {"wishes": [ROW["wishes"][0], ROW["wishes"][0]]}
    assert (await play(SEND, "Done.", row=row)).wishes_done == [True, False]
    assert (await play(SEND, SEND, "Done.", row=row)).reward == 1.0


TURNS = {
    "wishes": [
        {"kind": "ask", "turn": 1, "number": 1, "form": "person", "answer": LARS},
        {"kind": "ask", "turn": 2, "number": 2, "form": "day", "answer": "2023-12-05"},
        {"kind": "ask", "turn": 2, "number": 3, "form": "time", "answer": "14:30"},
    ]
}
THANKS, NO = heard("Thanks. And when?"), heard("That is all, thank you.")
DIALOGUES = {
    "answered in turn": (["Q1: Lars", THANKS, "Q2: December 5\nQ3: 2:30 pm"], [True, True, True]),
    "a needless question at the end": (["Q1: Lars", THANKS, "Q2: 2023-12-05\nQ3: 14:30", NO, "Bye."], [True] * 3),
    "everything at the end": (["Hm.", THANKS, "Q1: Lars\nQ2: 2023-12-05\nQ3: 14:30"], [False, True, True]),
    "everything at once": (["Q1: Lars\nQ2: 2023-12-05\nQ3: 14:30"], [True, False, False]),
    "too late": (["Q1: Lars", THANKS, "Let me see.", NO, "Q2: 2023-12-05\nQ3: 14:30"], [True, False, False]),
    "corrected in the same turn": (["Q1: Oona", "Q1: Lars", THANKS, "Q2: ?\nQ3: 14:30"], [True, False, True]),
}


@pytest.mark.parametrize(("items", "done"), DIALOGUES.values(), ids=DIALOGUES)
async def test_each_reply_answers_the_questions_of_its_message(items, done):
    assert (await play(*items, row=TURNS)).wishes_done == done


async def test_stored_rollout_is_graded_again_by_its_calls():
    async with rollout(make_server(MultipleIntentsServer), **ROW) as attempt:
        assert (await attempt.verify(reply(*ALL, "Q1: 4"))).reward == 1.0


UNKNOWN = {"name": "email_burn", "arguments": "{}"}
MISSING = {"name": "calendar_delete_event", "arguments": json.dumps({"event_id": "99999999"})}
SAME = {"name": WIN.name, "arguments": LOSE_AGAIN.arguments}


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ([{"kind": "add", "calls": [UNKNOWN]}], "wishes[0].calls: 'email_burn' is not a tool"),
        ([ROW["wishes"][0], {"kind": "cancel", "calls": [MISSING]}], "wishes[1].calls: There is no event_id"),
        ([{"kind": "change", "calls": [SAME]}], "wishes[0].calls: the calls have no lasting effect"),
        (
            [{"kind": "change", "calls": truth(each)} for each in (MOVE, update(EVENT, "event_start", "x"))],
            "wishes[0].calls: the calls have no lasting effect",
        ),
    ],
)  # fmt: skip
async def test_row_that_cannot_be_fulfilled_is_rejected(wishes, problem):
    with pytest.raises(InvalidTask) as failure:
        await play("Done.", row={"wishes": wishes})
    assert problem in str(failure.value)


@pytest.mark.parametrize(
    "wish",
    [
        {"kind": "ask", "number": 1, "form": "number", "answer": "many"},
        {"kind": "ask", "number": 1, "form": "day", "answer": "tomorrow"},
        {"kind": "ask", "number": 1, "form": "colour", "answer": "red"},
        {"kind": "add", "calls": []},
        {"kind": "wonder"},
    ],
)
async def test_row_with_an_invalid_wish_is_rejected(wish):
    with pytest.raises(DataError, match="wishes"):
        await play("Done.", row={"wishes": [wish]})


async def test_metrics_cover_subsets_and_components():
    server = make_server(MultipleIntentsServer)
    graded = [(await play(*items)).model_dump() for items, *_ in (CASES["all"], CASES["no answer"])]
    metrics = server.compute_metrics([[row] for row in graded])
    assert metrics["withdrawn/pass@1/all_done"] == 50.0
    assert metrics["withdrawn/pass@1[avg-of-1]/accuracy"] == 87.5
    assert metrics["pass@1/answered"] == 50.0
    assert server.get_key_metrics(metrics)["withdrawn/pass@1[avg-of-1]/accuracy"] == 87.5
