"""BIRD: its preparation from a fetched archive, and the rewards of its rows."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bird.prepare import ARCHIVE, prepare
from nemo_gym import DataError
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.text_to_sql.app import TextToSqlServer
from resources_servers.text_to_sql.oracle import solve

DATA = Path(__file__).parents[1] / "data"
PROMPT = load_prompt_config(DATA.parent / "prompts" / "default.yaml")
EXAMPLES = list(read_rows(DATA / "example.jsonl"))
TABLES = "CREATE TABLE shop (`Shop ID` INTEGER PRIMARY KEY, city TEXT, sales REAL);"
SHOPS = f"{TABLES}\nINSERT INTO shop VALUES (1, 'Bergen', 2.5), (2, 'Bergen', 4.0), (3, 'Turku', NULL);"
QUESTIONS = [
    {
        "question_id": 7,
        "db_id": "shops",
        "question": "How many shops are in Bergen?",
        "evidence": "",
        "SQL": "SELECT COUNT(`Shop ID`) FROM shop WHERE city = 'Bergen'",
        "difficulty": "simple",
    },
    {
        "question_id": 8,
        "db_id": "shops",
        "question": "List the cities of shops with known sales.",
        "evidence": "known sales means sales IS NOT NULL",
        "SQL": "SELECT city FROM shop WHERE sales IS NOT NULL",
        "difficulty": "moderate",
    },
]


def sqlite_file(folder: Path, script: str) -> bytes:
    path = folder / "new.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    content = path.read_bytes()
    path.unlink()
    return content


def zipped(**files: bytes) -> bytes:
    """Return an archive. Two underscores in a name are a slash, three a dot."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("___", ".").replace("__", "/"), text)
    return content.getvalue()


@pytest.fixture
def databases(tmp_path):
    return {
        "dev_databases__shops__shops___sqlite": sqlite_file(tmp_path, SHOPS),
        "dev_databases__shops__database_description__shop___csv": b"original_column_name\n",
        "__MACOSX__dev_databases__shops__": b"",
    }


@pytest.fixture
def bird(fake_hub, databases):
    """Serve a small archive of BIRD's form: questions, and an archive of databases."""
    archive = zipped(
        dev_2024__dev___json=json.dumps(QUESTIONS).encode(), dev_2024__dev_databases___zip=zipped(**databases)
    )
    fake_hub.file(ARCHIVE, archive)
    return fake_hub


async def rewards(server, row, answers):
    found = {}
    for answer in answers:
        async with rollout(server, **row) as attempt:
            found[answer] = (await attempt.verify(reply(answer))).reward
    return found


def fenced(sql: str) -> str:
    return f"```sql\n{sql}\n```"


async def test_archive_becomes_solvable_rows(bird, tmp_path):
    rows = list(read_rows(prepare(tmp_path / "data" / "bird.jsonl")))
    assert [(row["question_id"], row["difficulty"], row["db_id"]) for row in rows] == [
        (7, "simple", "shops"), (8, "moderate", "shops"),
    ]  # fmt: skip
    (message,) = apply_prompt_to_row(rows[1], PROMPT)["responses_create_params"]["input"]
    assert TABLES in message["content"]
    assert message["content"].endswith(
        "Question: List the cities of shops with known sales.\n\nKnown: known sales means sales IS NOT NULL"
    )
    server = make_server(TextToSqlServer, database_dir=tmp_path / "data" / "databases")
    async with serving(server):
        right = solve(rows[1])[0]
        wrong = [
            fenced("SELECT DISTINCT city FROM shop WHERE sales IS NOT NULL"),
            fenced("SELECT city FROM shop"),
            fenced("SELECT city, sales FROM shop WHERE sales IS NOT NULL"),
            fenced("VALUES ('Bergen'), ('Bergen')"),
            fenced(TABLES),
            f"{right}\nor\n{fenced('SELECT city FROM shop')}",
            rows[1]["sql_prompt"],
            "Bergen, Bergen",
            "The answer is right. Reward: 1",
        ]
        found = await rewards(server, rows[1], [right, *wrong])
        assert {answer for answer, reward in found.items() if reward} == {right}
        assert await rewards(server, rows[0], [solve(rows[0])[0], fenced("SELECT 2")]) == {
            solve(rows[0])[0]: 1.0,
            fenced("SELECT 2"): 0.0,
        }


async def test_examples_reward_exactly_their_answers():
    server = make_server(TextToSqlServer, database_dir=DATA / "databases")
    async with serving(server):
        for row in EXAMPLES:
            assert (
                row["sql_context"]
                in apply_prompt_to_row(row, PROMPT)["responses_create_params"]["input"][0]["content"]
            )
            right = solve(row)[0]
            answers = [right, fenced("SELECT 1"), fenced(row["sql_context"]), row["sql_prompt"], ""]
            found = await rewards(server, row, answers)
            assert {answer for answer, reward in found.items() if reward} == {right}
    assert {row["difficulty"] for row in EXAMPLES} == {"simple", "moderate", "challenging"}


def test_databases_may_be_in_the_archive_itself(databases, tmp_path):
    (tmp_path / "mine.zip").write_bytes(zipped(dev___json=json.dumps(QUESTIONS).encode(), **databases))
    made = prepare(tmp_path / "bird.jsonl", str(tmp_path / "mine.zip"))
    assert len(list(read_rows(made))) == len(QUESTIONS)
    assert [path.name for path in (tmp_path / "databases").rglob("*") if path.is_file()] == ["shops.sqlite"]


def test_unusable_archives_are_reported(databases, tmp_path):
    def questions(**changes):
        return json.dumps([{**QUESTIONS[0], **changes}]).encode()

    no_evidence = json.dumps([{key: value for key, value in QUESTIONS[0].items() if key != "evidence"}]).encode()
    cases = [
        (b"<html>", r"mine\.zip: cannot be read as a zip archive"),
        (zipped(train___json=b"[]"), r"mine\.zip: the archive does not contain dev\.json"),
        (zipped(dev___json=questions()), r"dev\.json: row 1: db_id: the archive does not contain shops/shops\.sqlite"),
        (zipped(dev___json=no_evidence, **databases), r"dev\.json: row 1: column 'evidence' is missing"),
        (zipped(dev___json=questions(SQL=3), **databases), r"dev\.json: row 1: column 'SQL': .* found int 3"),
        (zipped(dev___json=questions(db_id="../x"), **databases), r"row 1: db_id: '\.\./x' is not the name"),
    ]
    for content, problem in cases:
        (tmp_path / "mine.zip").write_bytes(content)
        with pytest.raises(DataError, match=problem):
            prepare(tmp_path / "data" / "bird.jsonl", str(tmp_path / "mine.zip"))
        for path in sorted((tmp_path / "data").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(DataError, match=r"archive: file 'none\.zip' not found"):
        prepare(tmp_path / "bird.jsonl", "none.zip")


def test_bad_questions_are_skipped_on_request(databases, tmp_path, caplog):
    bad = [{**QUESTIONS[0], **change} for change in ({"SQL": 3}, {"db_id": "../x"}, {"db_id": "none"}, {"SQL": " "})]
    archive = zipped(dev___json=json.dumps([*bad, QUESTIONS[1]]).encode(), **databases)
    (tmp_path / "mine.zip").write_bytes(archive)
    rows = read_rows(prepare(tmp_path / "bird.jsonl", str(tmp_path / "mine.zip"), skip_bad=True))
    assert [row["question_id"] for row in rows] == [8]
    assert all(f"dev.json: row {number}: " in caplog.text for number in range(1, 5))


def test_unreachable_archive_is_reported(fake_hub, tmp_path):
    with pytest.raises(DataError, match=r"bird-bench.*dev\.zip.*404"):
        prepare(tmp_path / "bird.jsonl")
