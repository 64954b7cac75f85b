"""Rows of every domain: each request lacks the stated detail, and its user knows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import DataError, shared_rows
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.proactive_asking.app import ProactiveAskingServer
from resources_servers.proactive_asking.domains import DOMAINS, in_words
from resources_servers.proactive_asking.oracle import solve
from resources_servers.proactive_asking.prepare import prepare

FOLDER = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return list(read_rows(prepare(tmp_path_factory.mktemp("rows") / "rows.jsonl", 200, complete_share=0.2)))


async def reward(server, row, items):
    async with rollout(server, **row) as attempt:
        output = []
        for item in reply(*items).output:
            output.append(item.model_dump(mode="json"))
            if item.type == "function_call":
                answer = await attempt.send(item)
                output.append({"type": "function_call_output", "call_id": item.call_id, "output": answer})
        response = type(reply()).model_validate({**reply().model_dump(mode="json"), "output": output})
        return (await attempt.verify(response)).reward


async def test_oracle_earns_full_reward_but_not_guessing(rows):
    server = make_server(ProactiveAskingServer)
    async with serving(server):
        for row in [*rows, *read_rows(FOLDER / "data" / "example.jsonl")]:
            solution = solve(row)
            assert await reward(server, row, solution) == 1.0
            assert await reward(server, row, [""]) == 0.0
            if row["missing_detail"]:
                assert await reward(server, row, solution[2:]) == 0.0


def test_request_contains_all_but_the_missing_detail(rows):
    for row in rows:
        request = row["responses_create_params"]["input"][-1]["content"]
        values = in_words(row["expected_booking"]["arguments"])
        missing = (row["missing_detail"] or {}).get("name")
        details = DOMAINS[row["domain"]].details
        for name, detail in details.items():
            assert (detail.clause.format_map(values) in request) == (name != missing), (name, request)
        assert "{" not in request
        assert all(str(values[name]) in request for name in values.keys() - details.keys())


def test_user_knows_the_missing_detail(rows):
    for row in rows:
        if row["missing_detail"] is None:
            continue
        (answer,) = [each for each in row["user"]["answers"] if each["asked"] == row["missing_detail"]["asked_with"]]
        value = in_words(row["expected_booking"]["arguments"])[row["missing_detail"]["name"]]
        assert (f"{value:g}" if isinstance(value, float) else str(value)) in answer["says"]
        assert value in row["user"]["facts"].values()


def test_user_is_a_shared_persona(rows):
    names = {row["name"] for row in shared_rows("personas.jsonl")}
    personas = {row["user"]["persona"] for row in rows}
    assert {persona.partition(",")[0] for persona in personas} <= names
    assert len(personas) > len(names) / 2
    assert "{" not in "".join(personas)


def test_rows_cover_all_domains_and_details(rows):
    lacking = {(row["domain"], (row["missing_detail"] or {}).get("name")) for row in rows}
    assert lacking == {(name, detail) for name, domain in DOMAINS.items() for detail in (None, *domain.details)}
    complete = sum(row["missing_detail"] is None for row in rows)
    assert 20 <= complete <= 60


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again, other = (prepare(tmp_path / name, 20, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_domains_can_be_selected(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 4, domain=["flight", "doctor"])))
    assert [row["domain"] for row in rows] == ["flight", "doctor"] * 2
    assert all(row["missing_detail"] for row in rows)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"complete_share": 1.5}, "complete_share: 1.5"),
        ({"domain": ["hotel"]}, "domain: 'hotel' does not exist. The domains are: restaurant, "),
    ],
)
def test_invalid_setting_is_reported_and_nothing_is_written(tmp_path, settings, problem):
    with pytest.raises(DataError, match=problem):
        prepare(tmp_path / "rows.jsonl", **settings)
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(("words", "code"), [(["--domain", "courier"], 0), (["--domain", "hotel"], 1)])
def test_script_writes_rows_or_reports_one_line(tmp_path, words, code):
    ran = subprocess.run(
        [
            sys.executable,
            str(FOLDER / "prepare.py"),
            *("--output", str(tmp_path / "rows.jsonl"), "--count", "3", *words),
        ],
        env={"PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stderr.count("\n") == code
    assert (tmp_path / "rows.jsonl").exists() == (code == 0)
