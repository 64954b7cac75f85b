"""WorkBench: its preparation from fetched files, and the rewards of its rows."""

from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path

import pytest

from benchmarks.workbench.prepare import ADDRESSES, QUERIES, REPOSITORY, TABLES, logger, prepare
from nemo_gym import DataError
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.workplace_assistant.app import WorkplaceAssistantServer
from resources_servers.workplace_assistant.oracle import solve
from tests.data.real_files import real_file

FOLDER = Path(__file__).parents[1]
EXAMPLES = list(read_rows(FOLDER / "data" / "example.jsonl"))
REVISION = "v1"
SMALL_TABLES = {
    "analytics_data.csv": "date_of_visit,visitor_id,page_views,session_duration_seconds,traffic_source,user_engaged\n"
    "2023-11-02,0001,3,12,direct,True\n",
    "calendar_events.csv": "event_id,event_name,participant_email,event_start,duration\n"
    "00000001,stand-up,fatima.khan@atlas.com,2023-12-01 09:00:00,30\n",
    "customer_relationship_manager_data.csv": "customer_id,assigned_to_email,customer_name,customer_email,"
    "customer_phone,last_contact_date,product_interest,status,follow_up_by,notes\n"
    "00000001,lena.schmidt@atlas.com,Bo Reed,bo@reed,,2023-11-01,Training,Lead,2023-12-01,\n",
    "emails.csv": "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body\n"
    "00000001,inbox,carlos.rodriguez@atlas.com,Keys,2023-11-20 10:00:00,Who has them?\n",
    "project_tasks.csv": "task_id,task_name,assigned_to_email,list_name,due_date,board\n"
    "00000001,Sort the icons,aisha.chen@atlas.com,Backlog,2023-12-01,Design\n",
    "email_addresses.csv": "carlos.rodriguez@atlas.com\nfatima.khan@atlas.com\n",
}
ANSWERS = {
    "analytics": 'analytics.create_plot.func(time_min="2023-11-01", time_max="2023-11-02", '
    'value_to_plot="total_visits", plot_type="bar")',
    "calendar": 'calendar.delete_event.func(event_id="00000001")',
    "customer_relationship_manager": "customer_relationship_manager.update_customer.func("
    'customer_id="00000001", field="status", new_value="Won")',
    "email": 'email.delete_email.func(email_id="00000001")',
    "multi_domain": 'email.forward_email.func(email_id="00000001", recipient="fatima.khan@atlas.com")',
    "project_management": 'project_management.delete_task.func(task_id="00000001")',
}


def query_file(*rows: tuple[str, str, str]) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text, quoting=csv.QUOTE_ALL)
    lines.writerow(["query", "answer", "base_template", "chosen_template", "domains"])
    lines.writerows([query, answer, "", "", domains] for query, answer, domains in rows)
    return text.getvalue().encode()


def domains_of(domain: str) -> str:
    return str(["email", "calendar"] if domain == "multi_domain" else [domain])


@pytest.fixture
def workbench(fake_hub):
    """Serve a small WorkBench."""
    for name, text in SMALL_TABLES.items():
        fake_hub.github(REPOSITORY, f"data/processed/{name}", text.encode(), REVISION)
    for domain, answer in ANSWERS.items():
        content = query_file((f"Do it: {domain}", str([answer]), domains_of(domain)))
        path = f"data/processed/queries_and_answers/{domain}_queries_and_answers.csv"
        fake_hub.github(REPOSITORY, path, content, REVISION)
    return fake_hub


def change(hub, domain: str, *rows: tuple[str, str, str]) -> None:
    path = f"data/processed/queries_and_answers/{domain}_queries_and_answers.csv"
    hub.github(REPOSITORY, path, query_file(*rows), REVISION)


async def test_each_domain_becomes_solvable_rows(workbench, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "workbench.jsonl", REVISION)))
    assert [row["category"] for row in rows] == sorted(ANSWERS)
    assert {row["workbench_version"] for row in rows} == {f"queries_and_answers@{REVISION}"}
    prompt = load_prompt_config(FOLDER / "prompts" / "default.yaml")
    system, user = apply_prompt_to_row(rows[0], prompt)["responses_create_params"]["input"]
    assert "Thursday, 2023-11-30" in system["content"]
    assert user["content"] == "Do it: analytics"
    server = make_server(WorkplaceAssistantServer, database_dir=tmp_path / "tables")
    async with serving(server):
        for row in rows:
            async with rollout(server, **row) as attempt:
                for item in solve(row)[:-1]:
                    assert not (await attempt.send(item)).startswith(("Error", "Invalid"))
                assert (await attempt.verify(reply("Done."))).reward == 1.0
            async with rollout(server, **row) as idle:
                assert (await idle.verify(reply(f"I have called {row['ground_truth']}."))).reward == 0.0
    tasks = [[{**row, "reward": 1.0}] for row in rows]
    assert server.compute_metrics(tasks)["calendar/pass@1/accuracy"] == 100.0


@pytest.mark.parametrize("columns", [("query", "answer"), ("task", "outcome")])
def test_renamed_files_are_read_and_named(fake_hub, tmp_path, columns):
    for name, text in SMALL_TABLES.items():
        fake_hub.github(REPOSITORY, f"data/processed/{name}", text.encode(), REVISION)
    for domain, answer in ANSWERS.items():
        content = query_file((f"Do it: {domain}", str([answer]), domains_of(domain)))
        content = content.replace(b'"query","answer"', f'"{columns[0]}","{columns[1]}"'.encode())
        path = f"data/processed/tasks_and_outcomes/{domain}_tasks_and_outcomes.csv"
        fake_hub.github(REPOSITORY, path, content, REVISION)
    rows = list(read_rows(prepare(tmp_path / "workbench.jsonl", REVISION)))
    assert [row["query"] for row in rows] == [f"Do it: {domain}" for domain in sorted(ANSWERS)]
    assert {row["workbench_version"] for row in rows} == {f"tasks_and_outcomes@{REVISION}"}


async def test_examples_reward_exactly_their_answers(tmp_path):
    for name, text in SMALL_TABLES.items():
        (tmp_path / name).write_text(text)
    spoilers = {
        "repeated": lambda row: solve(row)[:-1] * 2,
        "partial": lambda row: solve(row)[:-2],
        "excessive": lambda row: [*solve(row)[:-1], call("calendar_delete_event", event_id="00000001")],
        "only said": lambda row: [],
    }
    prompt = load_prompt_config(FOLDER / "prompts" / "default.yaml")
    server = make_server(WorkplaceAssistantServer, database_dir=tmp_path)
    wrong = []
    async with serving(server):
        for row in EXAMPLES:
            assert apply_prompt_to_row(row, prompt)["responses_create_params"]["input"][1]["content"] == row["query"]
            for kind, calls_for in {"right": lambda row: solve(row)[:-1], **spoilers}.items():
                async with rollout(server, **row) as attempt:
                    for item in calls_for(row):
                        await attempt.send(item)
                    graded = await attempt.verify(reply("Everything is done as requested."))
                # The same plot twice is one more plot.
                if graded.reward != float(kind == "right"):
                    wrong.append((row["id"], kind, graded.reward))
    assert wrong == []


def test_unknown_function_is_reported_or_skipped(workbench, tmp_path):
    change(workbench, "analytics", ("Fly", "['travel.book_flight.func(city=\"Rome\")']", "['travel']"))
    with pytest.raises(
        DataError, match=r"analytics_queries_and_answers\.csv:2: answer: 'travel_book_flight' is not a"
    ):
        prepare(tmp_path / "workbench.jsonl", REVISION)
    assert not (tmp_path / "workbench.jsonl").exists()
    rows = read_rows(prepare(tmp_path / "workbench.jsonl", REVISION, skip_bad=True))
    assert [(row["id"], row["category"]) for row in rows] == list(enumerate(sorted(ANSWERS)))[1:]


def test_impossible_arguments_are_reported(workbench, tmp_path):
    change(workbench, "email", ("Go", "['email.delete_email.func(number=\"1\")']", "['email']"))
    with pytest.raises(DataError, match=r"email_queries_and_answers\.csv:2: answer: email_delete_email: email_id"):
        prepare(tmp_path / "workbench.jsonl", REVISION)


def test_refused_answers_are_counted(workbench, tmp_path, caplog):
    change(workbench, "email", ("Go", "['email.delete_email.func(email_id=\"00000404\")']", "['email']"))
    with caplog.at_level(logging.WARNING):
        prepare(tmp_path / "workbench.jsonl", REVISION)
    assert "email_queries_and_answers.csv:2: a tool rejects a call of the answer" in caplog.text
    assert "1 queries have answers with rejected calls" in caplog.text


def test_addresses_may_be_raw_data(workbench, tmp_path):
    workbench.remove(ADDRESSES[0])
    workbench.github(REPOSITORY, f"data/raw/{ADDRESSES[0]}", b"carlos.rodriguez@atlas.com\n", REVISION)
    assert len(list(read_rows(prepare(tmp_path / "workbench.jsonl", REVISION)))) == len(ANSWERS)


def test_missing_and_changed_files_are_reported(workbench, tmp_path):
    with pytest.raises(DataError, match=r"olly-styles/WorkBench/main/.*analytics_data\.csv.*404"):
        prepare(tmp_path / "workbench.jsonl")
    workbench.github(REPOSITORY, "data/processed/analytics_data.csv", b"other")
    with pytest.raises(DataError, match=TABLES["analytics_data.csv"]):
        prepare(tmp_path / "workbench.jsonl")


def test_real_files_match_their_hashes_and_become_rows(fake_hub, tmp_path, caplog):
    workbench = real_file("workbench")
    for name in (*TABLES, ADDRESSES[0]):
        fake_hub.github(REPOSITORY, f"data/processed/{name}", (workbench / name).read_bytes())
    for domain, pin in QUERIES.items():
        name = f"{domain}_queries_and_answers.csv"
        content = (workbench / name).read_bytes() if pin else query_file(("Wait", "[]", "['analytics']"))
        fake_hub.github(REPOSITORY, f"data/processed/queries_and_answers/{name}", content)
    with caplog.at_level(logging.WARNING):
        rows = list(read_rows(prepare(tmp_path / "workbench.jsonl")))
    assert len(rows) == 204
    first = next(row for row in rows if row["category"] == "calendar")
    assert first["query"] == "Delete my first meeting on December 13"
    (deletion,) = first["ground_truth"]
    assert (deletion["name"], json.loads(deletion["arguments"])) == ("calendar_delete_event", {"event_id": "00000256"})
    assert [each.message for each in caplog.records if each.name == logger.name] == []
