"""The server's separate sessions, and its rewards by the final state of the company."""

import asyncio
import json

import pytest

from nemo_gym import DataError, InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.workplace_assistant.app import WorkplaceAssistantServer
from resources_servers.workplace_assistant.oracle import asks_for_something, solve
from resources_servers.workplace_assistant.prepare import INSTRUCTIONS, prepare

EXAMPLES = list(read_rows(INSTRUCTIONS.parents[1] / "data" / "example.jsonl"))

DELETE = call("email_delete_email", email_id="00000096")
GRETA, LARS = "greta.lindqvist@brightharbor.example", "lars.henriksen@brightharbor.example"
SEND = call("email_send_email", recipient=GRETA, subject="Hello", body="How are you?")
SEND_OTHER = call("email_send_email", recipient=LARS, subject="Hello", body="And you?")
SEND_SHOUTED = call("email_send_email", recipient=GRETA.upper(), subject="HELLO", body="how are YOU?")
MAKE = call(
    "calendar_create_event",
    event_name="talk",
    participant_email=LARS,
    event_start="2023-12-01 09:00:00",
    duration="30",
)
RENAME = call("calendar_update_event", event_id="00000285", field="event_name", new_value="Goodbye")
RENAME_SHOUTED = RENAME.model_copy(update={"arguments": RENAME.arguments.replace("Goodbye", "GOODBYE")})
RENAME_OTHERWISE = call("calendar_update_event", event_id="00000285", field="event_name", new_value="Farewell")
RENAME_BACK = call("calendar_update_event", event_id="00000285", field="event_name", new_value="Quarter KICK-OFF")
PLOT = call(
    "analytics_create_plot",
    time_min="2023-11-01",
    time_max="2023-11-02",
    value_to_plot="total_visits",
    plot_type="bar",
)


def plot_until(day):
    return PLOT.model_copy(update={"arguments": PLOT.arguments.replace("2023-11-02", day)})


PLOTTED = "plots 'plots/2023-1...isits_bar.png'"
YESTERDAY, TODAY, TOMORROW = map(plot_until, ("2023-11-29", "2023-11-30", "2023-12-01"))
READ = call("email_search_emails", query="rosa")
FAIL = call("email_delete_email", email_id="12345678")
NUMBERS = call("email_search_emails", page=1, page_size=2, date_min=None)
WRONG = call("email_delete_email", id="00000096")
MADE_EVENT = "00000300"
UNMAKE = call("calendar_delete_event", event_id=MADE_EVENT)
REMAKE = MAKE.model_copy(update={"arguments": MAKE.arguments.replace("09:00", "10:00")})


def truth(*calls):
    return [{"name": each.name, "arguments": each.arguments} for each in calls]


@pytest.fixture(scope="module")
def server():
    return make_server(WorkplaceAssistantServer)


REWARDS = [
    ("the same call", [DELETE], [DELETE], 1.0),
    ("several calls", [DELETE, SEND, RENAME, PLOT], [DELETE, SEND, RENAME, PLOT], 1.0),
    ("another order", [DELETE, SEND, RENAME, PLOT], [PLOT, RENAME, SEND, DELETE], 1.0),
    ("another order of two of a kind", [SEND, SEND_OTHER], [SEND_OTHER, SEND], 1.0),
    ("other case in a new row", [SEND], [SEND_SHOUTED], 1.0),
    ("other case in a changed row", [RENAME], [RENAME_SHOUTED], 1.0),
    ("additional reading", [DELETE], [READ, DELETE, READ, NUMBERS], 1.0),
    ("additional failures", [DELETE], [FAIL, DELETE, FAIL, WRONG], 1.0),
    ("a repeated deletion", [DELETE], [DELETE, DELETE], 1.0),
    ("a detour", [RENAME], [RENAME_OTHERWISE, RENAME], 1.0),
    ("a new row deleted again", [SEND], [MAKE, SEND, UNMAKE], 1.0),
    ("a new row created again", [REMAKE], [MAKE, UNMAKE, REMAKE], 1.0),
    ("a plot", [PLOT], [PLOT], 1.0),
    ("a plot up to today, which has no visits yet", [YESTERDAY], [TODAY], 1.0),
    ("a plot up to yesterday", [TODAY], [YESTERDAY], 1.0),
    ("a plot up to tomorrow", [TODAY], [TOMORROW], 0.0),
    ("a plot up to another day", [YESTERDAY], [PLOT], 0.0),
    ("both plots instead of one", [YESTERDAY], [YESTERDAY, TODAY], 0.0),
    ("nothing if nothing is requested", [], [], 1.0),
    ("reading if nothing is requested", [], [READ, FAIL], 1.0),
    ("a name that differs from the old one in case", [], [RENAME_BACK], 1.0),
    ("an undone change if nothing is requested", [], [RENAME, RENAME_BACK], 1.0),
    ("nothing", [DELETE], [], 0.0),
    ("only reading", [DELETE], [READ], 0.0),
    ("only failing", [DELETE], [FAIL, WRONG], 0.0),
    ("a missing change", [DELETE, SEND], [DELETE], 0.0),
    ("a missing email", [DELETE, SEND], [SEND], 0.0),
    ("a missing plot", [PLOT], [], 0.0),
    ("an extra change", [DELETE], [DELETE, RENAME], 0.0),
    ("an extra email", [DELETE], [DELETE, SEND], 0.0),
    ("an extra plot", [DELETE], [DELETE, PLOT], 0.0),
    ("an email sent twice", [SEND], [SEND, SEND], 0.0),
    ("a plot made twice", [PLOT], [PLOT, PLOT], 0.0),
    ("an email sent once of two", [SEND, SEND], [SEND], 0.0),
    ("another value", [RENAME], [RENAME_OTHERWISE], 0.0),
    ("another receiver", [SEND], [SEND_OTHER], 0.0),
    ("a change if nothing is requested", [], [SEND], 0.0),
    ("deleting instead of changing", [RENAME], [call("calendar_delete_event", event_id="00000285")], 0.0),
    ("a ground truth that reads", [READ, DELETE], [DELETE], 1.0),
]  # fmt: skip


async def test_only_the_final_state_counts(server):
    wrong = []
    for name, truth_calls, calls, reward in REWARDS:
        async with rollout(server, ground_truth=truth(*truth_calls)) as attempt:
            for each in calls:
                await attempt.send(each)
            live = await attempt.verify(reply("Done."))
        async with rollout(server, ground_truth=truth(*truth_calls)) as attempt:
            # A stored rollout has no session.
            stored = await attempt.verify(reply(*calls, "Done."))
        if (live.reward, stored.reward) != (reward, reward):
            wrong.append((name, reward, live.reward, stored.reward))
    assert wrong == []


async def test_why_names_missing_and_unexpected_changes(server):
    cases = [
        ([DELETE], [DELETE], "the final data are as expected"),
        ([DELETE], [], "missing: emails 00000096 'deleted'"),
        (
            [RENAME],
            [RENAME_OTHERWISE],
            "missing: events 00000285 event_name 'goodbye'; not expected: events 00000285 event_name 'farewell'",
        ),
        ([], [PLOT] * 5, f"not expected: {', '.join([PLOTTED] * 3)}, and 2 more"),
    ]
    wrong = []
    for truth_calls, calls, why in cases:
        async with rollout(server, ground_truth=truth(*truth_calls)) as attempt:
            found = (await attempt.verify(reply(*calls, "Done."))).why
        if found != why:
            wrong.append((why, found))
    assert wrong == []


async def test_calls_of_a_truncated_turn_do_not_count(server):
    plain = reply(DELETE)
    cut_off = {**plain.model_dump(), "incomplete_details": {"reason": "max_output_tokens"}}
    answered = {"type": "function_call_output", "call_id": DELETE.call_id, "output": "The email was deleted."}
    later = {**cut_off, "output": [DELETE.model_dump(), answered, SEND.model_dump()]}
    for response, reward in ((cut_off, 0.0), (later, 1.0)):
        async with rollout(server, ground_truth=truth(DELETE)) as stored:
            assert (await stored.verify(type(plain).model_validate(response))).reward == reward


async def test_session_state_takes_precedence_over_the_response(server):
    async with rollout(server, ground_truth=truth(DELETE)) as attempt:
        await attempt.send(READ)
        assert (await attempt.verify(reply(DELETE))).reward == 0.0


@pytest.mark.parametrize(
    "arguments", ["", "[", "[]", "null", '{"email_id": ["00000096"]}', '{"id": "1"}', "[" * 100_000]
)
async def test_invalid_stored_call_changes_nothing(server, arguments):
    odd = DELETE.model_copy(update={"arguments": arguments})
    unknown = DELETE.model_copy(update={"name": "email_burn_email"})
    async with rollout(server, ground_truth=[]) as attempt:
        assert (await attempt.verify(reply(odd, unknown))).reward == 1.0


@pytest.mark.parametrize(
    ("truth_calls", "problem"),
    [
        ([FAIL], "There is no email_id '12345678'"),
        ([DELETE, FAIL], "There is no email_id '12345678'"),
        ([DELETE, DELETE], "There is no email_id '00000096'"),
        ([call("project_management_delete_task", task_id="99999999")], "There is no task_id '99999999'"),
        ([call("email_send_email", recipient="greta", subject="Hi", body="Hi")], "'greta' is not an email address"),
        ([call("company_directory_find_email_address", name="Nobody")], "no entry for 'Nobody'"),
    ],
)
@pytest.mark.parametrize("calls", [[], [DELETE]], ids=["idle", "busy"])
async def test_rejected_ground_truth_fails_the_rollout(server, truth_calls, problem, calls):
    async with rollout(server, ground_truth=truth(*truth_calls)) as attempt:
        with pytest.raises(InvalidTask) as failure:
            await attempt.verify(reply(*calls, "Done."))
    assert problem in str(failure.value)


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("email_delete_emails", "{}", "'email_delete_emails' is not a tool; did you mean 'email_delete_email'?"),
        ("paint", "{}", "'paint' is not a tool"),
        ("email_delete_email", "{", "the arguments are not JSON"),
        ("email_delete_email", "[]", "the arguments are not a JSON object"),
        ("email_delete_email", '{"id": "1"}', "email_delete_email: "),
        ("email_delete_email", "{}", "email_id: Missing"),
        ("email_delete_email", '{"email_id": ["1"]}', "email_id: "),
    ],
)
async def test_invalid_ground_truth_fails_the_rollout(server, name, arguments, problem):
    async with rollout(server, ground_truth=[{"name": name, "arguments": arguments}]) as attempt:
        with pytest.raises(InvalidTask) as failure:
            await attempt.verify(reply("Done."))
    assert problem in str(failure.value)
    assert "workplace_assistant: ground_truth: " in str(failure.value)


async def test_number_arguments_become_their_digits(server):
    loose = MAKE.model_copy(update={"arguments": MAKE.arguments.replace('"30"', "30")})
    for truth_call, made in ((MAKE, loose), (loose, MAKE)):
        async with rollout(server, ground_truth=truth(truth_call)) as attempt:
            assert await attempt.send(made) == json.dumps({"event_id": MADE_EVENT}, separators=(",", ":"))
            assert (await attempt.verify(reply("Done."))).reward == 1.0


async def test_concurrent_rollouts_do_not_interfere(server):
    async with rollout(server, ground_truth=truth(DELETE)) as one, rollout(server, ground_truth=truth(SEND)) as other:
        await one.send(DELETE)
        assert "Rosa" in await other.call("email_get_email_information_by_id", email_id="00000096", field="body")
        await other.send(SEND)
        rewards = await asyncio.gather(one.verify(reply("Done.")), other.verify(reply("Done.")))
    assert [graded.reward for graded in rewards] == [1.0, 1.0]


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["category"])
async def test_oracle_solves_every_example_and_silence_none(server, row):
    assert asks_for_something(row)
    await check(server, row)


async def test_oracle_solves_every_generated_errand(server, tmp_path):
    async with serving(server):
        for row in read_rows(prepare(tmp_path / "rows.jsonl", count=150, seed=3)):
            await check(server, row)


async def check(server, row):
    """Check that the oracle earns 1, and that silence does only if no change is needed."""
    async with rollout(server, **row) as attempt:
        for item in solve(row)[:-1]:
            assert not (await attempt.send(item)).startswith(("Error", "Invalid"))
        assert (await attempt.verify(reply("Done."))).reward == 1.0
    async with rollout(server, **row) as idle:
        assert (await idle.verify(reply(""))).reward == float(not asks_for_something(row))


async def test_metrics_cover_each_category(server):
    rows = [{"reward": 1.0, "category": "email"}, {"reward": 0.0, "category": "calendar"}]
    metrics = server.compute_metrics([[row] for row in rows])
    assert metrics["email/pass@1/accuracy"] == 100.0
    assert metrics["calendar/pass@1/accuracy"] == 0.0
    assert server.get_key_metrics({"mean/id": 2.0, "mean/reward": 0.5}) == {"mean/reward": 0.5}


def test_database_dir_without_tables_stops_the_server(tmp_path):
    with pytest.raises(DataError) as failure:
        make_server(WorkplaceAssistantServer, database_dir=tmp_path).setup_webserver()
    assert str(failure.value).startswith(f"{tmp_path / 'emails.csv'}: cannot be read")
