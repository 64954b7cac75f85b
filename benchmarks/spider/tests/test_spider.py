"""Spider: its preparation from fetched files, and the rewards of its rows."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.spider.prepare import QUESTIONS, prepare
from nemo_gym import DataError, run_prepare
from nemo_gym.data.prompts import apply_prompt_to_row, load_prompt_config
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.text_to_sql.app import TextToSqlServer
from resources_servers.text_to_sql.oracle import solve

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DATA = Path(__file__).parents[1] / "data"
PROMPT = load_prompt_config(DATA.parent / "prompts" / "default.yaml")
EXAMPLES = list(read_rows(DATA / "example.jsonl"))
TABLES = "CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT, kind TEXT);"
PETS = f"{TABLES}\nINSERT INTO pet VALUES (1, 'Rex', 'dog'), (2, 'Tom', 'cat'), (3, 'Ada', 'dog');"
OTHER_PETS = (
    f"{TABLES}\nINSERT INTO pet VALUES (1, 'Kim', 'cat'), (2, 'Lu', 'dog'), (4, 'Lu', 'dog'), (5, 'Bo', 'dog');"
)
ROWS = [
    {"db_id": "pets", "question": "How many dogs are there?", "query": "SELECT count(*) FROM pet WHERE kind = 'dog'"},
    {
        "db_id": "pets",
        "question": "Names of all dogs, sorted?",
        "query": "SELECT name FROM pet WHERE kind = 'dog' ORDER BY name",
    },
]


def sqlite_file(folder: Path, script: str) -> bytes:
    path = folder / "new.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    content = path.read_bytes()
    path.unlink()
    return content


def archive(path: Path, **scripts: str) -> str:
    """Write an archive with databases in the folder of this name. Two underscores are a slash."""
    with zipfile.ZipFile(path, "w") as opened:
        for name, script in scripts.items():
            opened.writestr(f"{name.replace('__', '/')}.sqlite", sqlite_file(path.parent, script))
        opened.writestr("spider_data/tables.json", "[]")
    return str(path)


def parquet_of(rows) -> bytes:
    content = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), content)
    return content.getvalue()


@pytest.fixture
def spider(fake_hub):
    """Serve two questions."""
    rows = [{**row, "query_toks": row["query"].split()} for row in ROWS]
    fake_hub.huggingface(QUESTIONS.repo, QUESTIONS.path, parquet_of(rows))
    return fake_hub


def fenced(sql: str) -> str:
    return f"```sql\n{sql}\n```"


async def rewards(server, row, answers):
    found = {}
    for answer in answers:
        async with rollout(server, **row) as attempt:
            found[answer] = (await attempt.verify(reply(fenced(answer)))).reward
    return found


ONE, SUITE = "spider_data__database__pets__pets", "database__pets__pets_fuzz_1"
HIDDEN = "spider_data__test_database__pets__pets"


async def test_archive_becomes_solvable_rows(spider, tmp_path):
    given = archive(tmp_path / "spider_data.zip", **{ONE: PETS, HIDDEN: OTHER_PETS})
    rows = list(read_rows(prepare(tmp_path / "data" / "spider.jsonl", given)))
    assert [(row["question_id"], row["db_id"]) for row in rows] == [(0, "pets"), (1, "pets")]
    (message,) = apply_prompt_to_row(rows[0], PROMPT)["responses_create_params"]["input"]
    assert TABLES in message["content"]
    assert message["content"].endswith("Question: How many dogs are there?")
    server = make_server(TextToSqlServer, database_dir=tmp_path / "data" / "databases")
    async with serving(server):
        answers = {
            "SELECT COUNT(id) FROM pet WHERE kind LIKE 'dog'": 1.0,
            "SELECT 2": 0.0,
            "SELECT count(*) FROM pet": 0.0,
            "SELECT 'two' FROM pet": 0.0,
            # One database cannot show that this is wrong.
            "SELECT id - 1 FROM pet WHERE name = 'Ada'": 1.0,
        }
        assert await rewards(server, rows[0], answers) == answers
        in_order = {ROWS[1]["query"]: 1.0, "SELECT name FROM pet WHERE kind = 'dog'": 0.0}
        assert await rewards(server, rows[1], in_order) == in_order


async def test_test_suites_reject_lucky_queries(spider, tmp_path):
    archives = [archive(tmp_path / "a.zip", **{ONE: PETS}), archive(tmp_path / "b.zip", **{SUITE: OTHER_PETS})]
    rows = list(read_rows(prepare(tmp_path / "data" / "spider.jsonl", archives)))
    server = make_server(TextToSqlServer, database_dir=tmp_path / "data" / "databases")
    async with serving(server):
        answers = {
            ROWS[0]["query"]: 1.0,
            "SELECT id - 1 FROM pet WHERE name = 'Ada'": 0.0,
            "SELECT count(DISTINCT name) FROM pet WHERE kind = 'dog'": 0.0,
        }
        assert await rewards(server, rows[0], answers) == answers


async def test_examples_reward_exactly_their_answers():
    server = make_server(TextToSqlServer, database_dir=DATA / "databases")
    lucky = [
        "SELECT COUNT(*) FROM singer WHERE joined_year = 2018",
        "SELECT name FROM singer WHERE id < 4",
        "SELECT name, voice FROM singer ORDER BY id DESC",
        "SELECT park FROM trail WHERE name = 'Ridge'",
        "SELECT name FROM trail WHERE km < 5",
    ]
    async with serving(server):
        for row, wrong in zip(EXAMPLES, lucky, strict=True):
            assert (
                row["sql_context"]
                in apply_prompt_to_row(row, PROMPT)["responses_create_params"]["input"][0]["content"]
            )
            assert solve(row)[0] == fenced(row["sql"])
            answers = {row["sql"]: 1.0, wrong: 0.0, "SELECT 1": 0.0, row["sql_context"]: 0.0}
            assert await rewards(server, row, answers) == answers


def test_databases_are_extracted_once(spider, tmp_path):
    output = tmp_path / "data" / "spider.jsonl"
    with pytest.raises(DataError, match=r"databases are missing.*--prepare_script_args\.databases <zip>"):
        prepare(output)
    address = "https://example.org/files/spider_data.zip"
    spider.file(address, Path(archive(tmp_path / "given.zip", **{ONE: PETS})).read_bytes())
    made = prepare(output, address).read_bytes()
    output.unlink()
    assert prepare(output).read_bytes() == made


def test_prepare_runs_from_the_command_line(spider, tmp_path):
    archives = [archive(tmp_path / "a.zip", **{ONE: PETS}), archive(tmp_path / "b.zip", **{SUITE: OTHER_PETS})]
    flags = [flag for path in archives for flag in ("--databases", path)]
    run_prepare(prepare, ["--output", str(tmp_path / "spider.jsonl"), *flags])
    assert len(list((tmp_path / "databases" / "pets").iterdir())) == 2


def test_bad_questions_are_skipped_on_request(spider, tmp_path, caplog):
    bad = [{**ROWS[0], "query": " "}, {**ROWS[0], "db_id": "cars"}, {**ROWS[0], "question": None}]
    spider.huggingface(QUESTIONS.repo, QUESTIONS.path, parquet_of([*bad, ROWS[1]]))
    given = archive(tmp_path / "spider_data.zip", **{ONE: PETS})
    rows = read_rows(prepare(tmp_path / "data" / "spider.jsonl", given, skip_bad=True))
    assert [row["question_id"] for row in rows] == [3]
    assert all(f"{Path(QUESTIONS.path).name}: row {number}: " in caplog.text for number in (1, 2, 3))


def test_unusable_files_are_reported(spider, tmp_path):
    other = archive(tmp_path / "other.zip", database__cars__cars=PETS)
    with pytest.raises(DataError, match=r"row 1: db_id: the archive does not contain pets/pets\.sqlite"):
        prepare(tmp_path / "spider.jsonl", other)
    with pytest.raises(DataError, match=r"databases: file 'none\.zip' not found"):
        prepare(tmp_path / "spider.jsonl", "none.zip")
    spider.huggingface(QUESTIONS.repo, QUESTIONS.path, parquet_of([{"db_id": "pets", "question": "?"}]))
    with pytest.raises(DataError, match="column 'query' is missing"):
        prepare(tmp_path / "other" / "spider.jsonl", other)
