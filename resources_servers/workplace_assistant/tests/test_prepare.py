"""Rows made from errands and from WorkBench's queries."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.workplace_assistant.app import WorkplaceAssistantRunRequest, WorkplaceAssistantServer
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.errands import MAKERS, MOST_CALLS, Draw
from resources_servers.workplace_assistant.oracle import asks_for_something, solve
from resources_servers.workplace_assistant.prepare import MOST_ERRANDS, prepare
from tests.data.real_files import real_file

REPOSITORY = Path(__file__).resolve().parents[3]
QUERIES = ("email_queries_and_answers.csv", "calendar_queries_and_answers.csv")


def queries(folder, *rows):
    """Write a file of queries, each with its answer and domains."""
    path = folder / "queries.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["query", "answer", "base_template", "chosen_template", "domains"])
        lines.writerows([query, answer, "", "", domains] for query, answer, domains in rows)
    return path


GOOD = ("Delete it", """['email.delete_email.func(email_id="00000001")']""", "['email']")


def test_query_becomes_a_row(tmp_path):
    calls = [
        r'email.send_email.func(recipient="a@b.c", subject="S", body="one\ntwo")',
        'analytics.create_plot.func(time_min="2023-10-22", time_max=\'2023-11-29\', value_to_plot="total_visits", '
        'plot_type="line")',
    ]
    asked = (r"Say 'one\ntwo'", repr(calls), "['email', 'analytics']")
    path = queries(tmp_path, GOOD, asked, ("Wait", "[]", "['calendar']"))
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", [path])))
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert [row["category"] for row in rows] == ["email", "multi_domain", "calendar"]
    assert {row["environment_name"] for row in rows} == {"workbench"}
    system, user = rows[1]["responses_create_params"]["input"]
    assert (system["role"], user) == ("system", {"role": "user", "content": "Say 'one\ntwo'"})
    assert "2023-11-30" in system["content"]
    assert [(call["name"], json.loads(call["arguments"])) for call in rows[1]["ground_truth"]] == [
        ("email_send_email", {"recipient": "a@b.c", "subject": "S", "body": "one\ntwo"}),
        (
            "analytics_create_plot",
            {
                "time_min": "2023-10-22",
                "time_max": "2023-11-29",
                "value_to_plot": "total_visits",
                "plot_type": "line",
            },
        ),
    ]
    assert rows[2]["ground_truth"] == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (("", GOOD[1], GOOD[2]), "missing query. A line needs the query, its answer and its domains."),
        ((GOOD[0], "", GOOD[2]), "missing answer. A line needs the query, its answer and its domains."),
        ((GOOD[0], GOOD[1], ""), "missing domains. A line needs the query, its answer and its domains."),
        ((GOOD[0], "[", GOOD[2]), "answer: '[' is not a list"),
        ((GOOD[0], "'a'", GOOD[2]), "answer: \"'a'\" is not a list"),
        ((GOOD[0], "[1]", GOOD[2]), "answer: '[1]' is not a list"),
        ((GOOD[0], GOOD[1], "email"), "domains: 'email' is not a list"),
        ((GOOD[0], "['delete(']", GOOD[2]), "answer: 'delete(' is not a call"),
        ((GOOD[0], "['email']", GOOD[2]), "answer: 'email' is not a call"),
        ((GOOD[0], "['email.delete_email.func(1)']", GOOD[2]), "is not a call"),
        ((GOOD[0], "['email.delete_email.func(**{})']", GOOD[2]), "is not a call"),
        ((GOOD[0], "['email.delete_email.func(email_id=open)']", GOOD[2]), "is not a call"),
        ((GOOD[0], "['email.burn_email.func()']", GOOD[2]), "'email_burn_email' is not a tool"),
    ],
)
def test_invalid_query_is_reported_and_nothing_is_written(tmp_path, query, problem):
    path, output = queries(tmp_path, GOOD, query), tmp_path / "rows.jsonl"
    with pytest.raises(DataError) as failure:
        prepare(output, [path])
    assert str(failure.value).startswith(f"{path}:3: ")
    assert problem in str(failure.value)
    assert not output.exists()
    assert [row["id"] for row in read_rows(prepare(output, [path], skip_bad=True))] == [0]


def test_byte_order_mark_is_not_part_of_a_column(tmp_path):
    path = queries(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    (row,) = read_rows(prepare(tmp_path / "rows.jsonl", [path]))
    assert row["ground_truth"][0]["name"] == "email_delete_email"


@pytest.mark.parametrize(
    "content", [b"query,answer,domains\n\xff,[],[]\n", b'query,answer,domains\n"' + b"x" * 200_000]
)
def test_unreadable_file_is_reported(tmp_path, content):
    path = tmp_path / "queries.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"queries\.csv:\d+: not a line of a CSV file"):
        prepare(tmp_path / "rows.jsonl", [path])


def test_rows_depend_only_on_the_seed(tmp_path):
    one = prepare(tmp_path / "one.jsonl", count=100, seed=1).read_bytes()
    assert prepare(tmp_path / "again.jsonl", count=100, seed=1).read_bytes() == one
    assert prepare(tmp_path / "other.jsonl", count=100, seed=2).read_bytes() != one


def test_rows_about_our_company_are_valid_and_distinct(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", count=300)))
    assert len({row["responses_create_params"]["input"][1]["content"] for row in rows}) == 300
    for row in rows:
        assert len(WorkplaceAssistantRunRequest.model_validate(row).ground_truth) <= MOST_CALLS
    assert sum(map(asks_for_something, rows)) > 200


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_each_kind_of_errand_sometimes_requires_calls(maker):
    draw = Draw(made_up_company(), Random(0))
    made = [errand for _ in range(60) if (errand := maker(draw))]
    assert any(errand.calls for errand in made)
    for errand in made:
        assert errand.request[0].isupper()


def test_splits_have_no_errand_in_common(tmp_path):
    def requests(split, seed):
        rows = read_rows(prepare(tmp_path / "rows.jsonl", count=150, seed=seed, split=split))
        return {row["responses_create_params"]["input"][1]["content"] for row in rows}

    train, validation = requests("train", 0), requests("validation", 1)
    assert (len(train), len(validation), train & validation) == (150, 150, set())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"split": "validation", "count": 901}, "count: 901 is not between 1 and 900"),
        (
            {"split": "train", "input": [Path("queries.csv")]},
            "split: 'train' applies only to errands in the environment's own",
        ),
    ],
)
def test_impossible_splits_are_rejected(tmp_path, options, problem):
    with pytest.raises(DataError, match=problem):
        prepare(tmp_path / "rows.jsonl", **options)


@pytest.mark.parametrize("count", [0, -1, MOST_ERRANDS + 1])
def test_invalid_count_is_rejected(tmp_path, count):
    with pytest.raises(DataError, match="count: "):
        prepare(tmp_path / "rows.jsonl", count=count)


def run_script(*arguments):
    script = REPOSITORY / "resources_servers" / "workplace_assistant" / "prepare.py"
    return subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_script_writes_the_requested_number_of_rows(tmp_path):
    ran = run_script("--count", 7, "--seed", 5, "--output", tmp_path / "rows.jsonl")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(list(read_rows(tmp_path / "rows.jsonl"))) == 7


def test_script_reports_a_missing_file_in_one_line(tmp_path):
    ran = run_script("--input", tmp_path / "none.csv", "--output", tmp_path / "rows.jsonl")
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"{tmp_path / 'none.csv'}: cannot be read")
    assert ran.stderr.count("\n") == 1


async def test_every_workbench_query_rewards_only_its_answer(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", [real_file("workbench", name) for name in QUERIES])))
    assert len(rows) == 200
    server = make_server(WorkplaceAssistantServer, database_dir=str(real_file("workbench")))
    async with serving(server):
        for row in rows:
            async with rollout(server, **row) as attempt:
                for item in solve(row)[:-1]:
                    assert not (await attempt.send(item)).startswith(("Error", "Invalid")), row["ground_truth"]
                assert (await attempt.verify(reply("Done."))).reward == 1.0
            async with rollout(server, **row) as idle:
                assert (await idle.verify(reply(""))).reward == float(not row["ground_truth"])
    assert sum(not row["ground_truth"] for row in rows) == 12
