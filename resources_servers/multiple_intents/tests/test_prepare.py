"""Generated rows: their questions answered by other queries, their wishes replayed, their splits."""

import json
import random
import re
from collections import Counter, defaultdict
from datetime import date, timedelta

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.multiple_intents.app import MultipleIntentsServer
from resources_servers.multiple_intents.customer_wishes import a_customer, assign_customer, set_status
from resources_servers.multiple_intents.oracle import solve
from resources_servers.multiple_intents.prepare import prepare
from resources_servers.multiple_intents.scenarios import SUBSETS, NoSense, Scenario
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.effects import effects_on
from resources_servers.workplace_assistant.errands import Draw
from resources_servers.workplace_assistant.replay import try_call
from resources_servers.workplace_assistant.toolkits import TOOLS

MONTHS = {"August": 8, "September": 9, "October": 10, "November": 11, "December": 12}
DAY = re.compile(r"(August|September|October|November|December) (\d+)")
WEEKDAYS_AFTER = {4: 3, 5: 2}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return list(read_rows(prepare(tmp_path_factory.mktemp("rows") / "rows.jsonl", count=400, seed=5)))


def messages_of(row):
    return [row["responses_create_params"]["input"][-1]["content"], *row["user"]["script"]]


def calls_of(row, turn):
    return [each for wish in row["wishes"] if wish["turn"] == turn for each in wish.get("calls", ())]


class Desk:
    """The row's company after some calls, asked with the tools that a model has."""

    def __init__(self, row, calls):
        self.database = Database(made_up_company(row["company"]))
        for each in calls:
            try_call(self.database, each["name"], each["arguments"])

    def ask(self, tool, /, **arguments):
        return TOOLS[tool](self.database, **arguments)

    def address(self, name):
        return self.ask("company_directory_find_email_address", name=name)[0]

    def events(self, **arguments):
        return self.ask("calendar_search_events", page_size="50", **arguments)["events"]

    def customers(self, **arguments):
        return self.ask("customer_relationship_manager_search_customers", page_size="50", **arguments)["customers"]


def day_in(desk, words):
    """Return the day that the words mean."""
    if found := re.fullmatch(r"the first working day after my next meeting with (\w+)", words):
        start = desk.events(query=found[1].lower(), time_min="2023-11-30")[0]["event_start"]
        day = date.fromisoformat(start[:10])
        return (day + timedelta(days=WEEKDAYS_AFTER.get(day.weekday(), 1))).isoformat()
    month, number = DAY.fullmatch(words).groups()
    return f"2023-{MONTHS[month]:02}-{int(number):02}"


def meetings(desk, words):
    day = day_in(desk, words)
    return desk.events(time_min=day, time_max=day)


def seconds_of_email(desk, name):
    found = desk.ask("email_search_emails", query=desk.address(name), page_size="50")["emails"]
    return next(email for email in found if email["inbox/outbox"] == "inbox")["sent_datetime"]


def tasks(desk, **arguments):
    return desk.ask("project_management_search_tasks", **arguments)


QUESTIONS = {
    r"how many meetings I have on (.+)": lambda desk, day: str(len(meetings(desk, day))),
    r"how many minutes of meetings I have on (.+)": lambda desk, day: str(
        sum(int(each["duration"]) for each in meetings(desk, day))
    ),
    r"who my first meeting on (.+) is with": lambda desk, day: meetings(desk, day)[0]["participant_email"],
    r"at what time my last meeting on (.+) starts": lambda desk, day: meetings(desk, day)[-1]["event_start"][11:16],
    r"on which day my next meeting with (\w+) is": lambda desk, name: (
        desk.events(query=desk.address(name), time_min="2023-11-30")[0]["event_start"][:10]
    ),
    r"who our customer (.+) is assigned to": lambda desk, name: (
        desk.customers(customer_name=name)[0]["assigned_to_email"]
    ),
    r"by which day we have to follow up with our customer (.+)": lambda desk, name: (
        desk.customers(customer_name=name)[0]["follow_up_by"]
    ),
    r"how many of (\w+)'s customers have the status '(.+)'": lambda desk, name, status: str(
        len(desk.customers(assigned_to_email=desk.address(name), status=status))
    ),
    r"how many tasks (\w+) has in the list '(.+)'": lambda desk, name, list_name: str(
        len(tasks(desk, assigned_to_email=desk.address(name), list_name=list_name))
    ),
    r"when (\w+)'s task '(.+)' is due": lambda desk, name, task: (
        tasks(desk, assigned_to_email=desk.address(name), task_name=task)[0]["due_date"]
    ),
    r"on which day the latest email from (\w+) came in": lambda desk, name: seconds_of_email(desk, name)[:10],
    r"how many visits our web site had on (.+)": lambda desk, day: str(
        sum(desk.ask("analytics_total_visits_count", time_min=day_in(desk, day), time_max=day_in(desk, day)).values())
    ),
}  # fmt: skip


def answer_of(desk, question):
    for pattern, answer in QUESTIONS.items():
        if found := re.fullmatch(pattern, question):
            try:
                return answer(desk, *found.groups())
            except IndexError:
                # There is no such meeting or email.
                return None
    raise AssertionError(f"unknown question: {question}")


def desk_after(row, turn):
    """Return the company as it is when the messages up to this turn are fulfilled."""
    is_withdrawn_later = row["withdrawn_calls"] and row["user"]["script"]
    done = [made for each in range(1, turn + 1) for made in calls_of(row, each)]
    return Desk(row, [*done, *(row["withdrawn_calls"] if is_withdrawn_later and turn == 1 else [])])


def questions_of(row):
    """Return the turn and the words of each question, by number."""
    return {
        int(number): (turn, question)
        for turn, message in enumerate(messages_of(row), start=1)
        for question, number in re.findall(r"[Tt]ell me ([^.(\n]+) \(Q(\d+)\)", message)
    }


def test_questions_have_the_same_answers_by_other_queries(rows):
    kinds, wrong = set(), []
    for row in rows:
        asked = questions_of(row)
        expected = {wish["number"]: wish for wish in row["wishes"] if wish["kind"] == "ask"}
        assert sorted(asked) == sorted(expected) == list(range(1, len(expected) + 1))
        for number, (turn, question) in asked.items():
            assert expected[number]["turn"] == turn
            kinds.add(expected[number]["form"])
            found = answer_of(desk_after(row, turn), question)
            if found != expected[number]["answer"]:
                wrong.append((messages_of(row), number, found, expected[number]["answer"]))
    assert wrong == []
    assert kinds == {"number", "person", "day", "time"}


def test_calls_are_about_things_that_messages_name(rows):
    wrong = []
    for row in rows:
        for turn, message in enumerate(messages_of(row), start=1):
            for each in calls_of(row, turn):
                arguments = json.loads(each["arguments"])
                texts = [arguments.get(name) for name in ("customer_name", "customer_email", "task_name", "body")]
                wrong += [(message, text) for text in texts if text and text not in message]
    assert wrong == []


def test_independent_wishes_may_be_fulfilled_in_any_order(rows):
    rng = random.Random(1)
    for row in (row for row in rows if row["subset"] == "single_turn"):
        calls = calls_of(row, 1)
        # The calls of one wish commute, too, because each changes another row.
        assert effects_on(Desk(row, calls).database) == effects_on(Desk(row, rng.sample(calls, len(calls))).database)


def expected_answer(row, number):
    return next(wish["answer"] for wish in row["wishes"] if wish.get("number") == number)


def test_chains_change_the_answer_to_their_question(rows):
    chained = re.compile(r"(?:After that,|Once that is done,|Then) tell me [^.(\n]+ \(Q(\d+)\)")
    found = [(row, int(number)) for row in rows for said in messages_of(row) for number in chained.findall(said)]
    assert len(found) > 50
    for row, number in found:
        turn, question = questions_of(row)[number]
        assert answer_of(desk_after(row, turn - 1), question) != expected_answer(row, number)


def test_last_question_depends_on_the_withdrawal(rows):
    asked = re.compile(r"(?:On second thought|I have changed my mind).*\(Q(\d+)\)\.\Z", re.DOTALL)
    found = [(row, int(last[1])) for row in rows if (last := asked.search(messages_of(row)[-1]))]
    assert len(found) > 50
    for row, number in found:
        _, question = questions_of(row)[number]
        tempted = Desk(row, [*calls_of(row, 1), *calls_of(row, 2), *row["withdrawn_calls"]])
        assert answer_of(tempted, question) != expected_answer(row, number)


def test_unclear_withdrawal_is_not_drawn():
    company = made_up_company()
    same, other = (a_customer(Draw(company, random.Random(seed))) for seed in (7, 8))
    status = set_status(Draw(company, random.Random(7)))
    assert same["customer_name"] in status.text
    scenario = Scenario(Draw(company, random.Random(9)))
    assert scenario.withdraw(status, [(assign_customer(scenario.draw, other),)])
    with pytest.raises(NoSense):
        scenario.withdraw(status, [(assign_customer(scenario.draw, same),)])


def test_withdrawn_wish_would_change_something(rows):
    withdrawn = [row for row in rows if row["subset"] == "withdrawn"]
    assert {len(messages_of(row)) for row in withdrawn} == {1, 2}
    for row in withdrawn:
        calls = calls_of(row, 1)
        assert effects_on(Desk(row, [*calls, *row["withdrawn_calls"]]).database) != effects_on(
            Desk(row, calls).database
        )
        assert re.search("On second thought|I have changed my mind", messages_of(row)[-1])
    assert not any(row["withdrawn_calls"] for row in rows if row["subset"] != "withdrawn")


async def test_only_a_complete_attempt_earns_all(rows):
    server = make_server(MultipleIntentsServer)
    async with serving(server):
        for row in rows[:60]:
            assert (await reward(server, row, solve(row))).all_done
            *calls, _ = [item for item in solve(row) if not isinstance(item, str)]
            partial = await reward(server, row, [*calls, "Done."])
            assert partial.reward < 1.0


async def test_withdrawn_wish_costs_the_reward_unless_undone(rows):
    server = make_server(MultipleIntentsServer)
    for row in [row for row in rows if row["withdrawn_calls"]][:20]:
        wanted = [call(each["name"], **json.loads(each["arguments"])) for each in row["withdrawn_calls"]]
        graded = await reward(server, row, [*solve(row)[:-1], *wanted, solve(row)[-1]])
        assert (graded.reward, graded.no_trace, graded.all_done) == (0.0, 0.0, False)


async def reward(server, row, items):
    async with rollout(server, **row) as attempt:
        for item in reply(*items).output:
            if item.type == "function_call":
                assert not (await attempt.send(item)).startswith(("Error", "Invalid"))
        return await attempt.verify(reply(*items))


def answers_to(rows):
    """Return the answers to each question in the order of the rows."""
    found = defaultdict(list)
    for row in rows:
        for number, (_, question) in questions_of(row).items():
            found[question].append(expected_answer(row, number))
    return found


def test_train_answers_do_not_help_in_validation(tmp_path):
    train = list(read_rows(prepare(tmp_path / "train.jsonl", count=480, split="train")))
    validation = list(read_rows(prepare(tmp_path / "validation.jsonl", count=96, split="validation")))
    assert not {row["company"] for row in train} & {row["company"] for row in validation}
    known = answers_to(train)
    asked = [(known[question], answer) for question, answers in answers_to(validation).items() for answer in answers]
    seen = [(Counter(answers).most_common(1)[0][0], answer) for answers, answer in asked if answers]
    # Some questions have few possible answers, such as the five sellers.
    assert len(seen) > len(asked) / 3
    assert sum(usual == answer for usual, answer in seen) < len(seen) / 3


async def test_rollouts_in_several_companies_do_not_mix(rows):
    server = make_server(MultipleIntentsServer)
    one, other = rows[0], rows[-1]
    assert one["company"] != other["company"]
    async with rollout(server, **one) as first, rollout(server, **other) as second:
        for row, attempt in ((one, first), (other, second)):
            found = await attempt.call("calendar_search_events", query="rosa")
            assert json.loads(found) == Desk(row, []).ask("calendar_search_events", query="rosa")


def test_options_select_rows(tmp_path):
    def made(**options):
        return prepare(tmp_path / "rows.jsonl", count=12, **options).read_bytes()

    assert made(seed=1) == made(seed=1) != made(seed=2)
    chosen = ["dependent", "withdrawn"]
    assert [row["subset"] for row in map(json.loads, made(subset=chosen).splitlines())] == chosen * 6
    with pytest.raises(DataError, match=f"subset: 'easy' does not exist. The subsets are: {', '.join(SUBSETS)}"):
        made(subset=["easy"])
