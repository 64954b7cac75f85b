"""The index of a run: current records, filters, orders and bad files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Thread

import pytest

from nemo_gym.errors import DataError, UsageError
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.schemas.row import TaskKey
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.run_index import RunIndex
from nemo_gym.viewer.index.words import Cancelled
from tests.viewer.index_rows import append, complete, failed, index_of, lines, planned, scored, write


def keys(index: RunIndex, query: str = "", sort: str = "task", *, is_descending: bool = False) -> list[str]:
    page = index.select(Filter.parse(query), sort, is_descending=is_descending)
    assert page.total == len(page.rows)
    return [f"{row['task']}:{row['repeat']}" for row in page.rows]


def messages(index: RunIndex, *, is_running: bool = False) -> list[tuple[int | None, str]]:
    return [(problem["line"], problem["message"]) for problem in index.problems(is_running=is_running)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three tasks, played twice: two scored, a retried one, one that failed twice, one unresolved."""
    write(tmp_path / "x_materialized_inputs.jsonl", *(planned(task, at) for task in range(3) for at in (0, 1)))
    write(tmp_path / "x_failures.jsonl", failed(1, 0), failed(2, 0), failed(2, 0, attempt=1, cause="lost"))
    return write(
        tmp_path / "x.jsonl",
        scored(0, 0, 0.0, difficulty=3, metadata={"subset": "algebra", "deep": {"er": 1}}, is_hard=True),
        scored(0, 1, 1.0, difficulty=11, metadata={"subset": "geometry"}),
        scored(1, 0, 0.5, difficulty="none", is_hard=False),
        scored(1, 1, 1.0),
    )


def test_each_rollout_has_one_record(run: Path) -> None:
    index = index_of(run)
    rows = index.select(Filter()).rows
    assert [(row["task"], row["repeat"], row["outcome"], row["attempts"], row["failure"]) for row in rows] == [
        (0, 0, "scored", 0, None),
        (0, 1, "scored", 0, None),
        (1, 0, "scored", 1, None),
        (1, 1, "scored", 0, None),
        (2, 0, "failed", 1, "lost"),
        (2, 1, "unresolved", 0, None),
    ]
    places = {key: index.place(TaskKey(*key)) for key in ((1, 0), (2, 0), (2, 1))}
    assert [(place.path.name, place.line, place.outcome) for place in places.values() if place] == [
        ("x.jsonl", 3, Outcome.SCORED),
        ("x_failures.jsonl", 3, Outcome.FAILED),
        ("x_materialized_inputs.jsonl", 6, Outcome.UNRESOLVED),
    ]
    assert [place.read().failure_message for place in index.attempts(TaskKey(2, 0))] == [
        "attempt 0 failed",
        "attempt 1 failed",
    ]
    given = index.planned(TaskKey(0, 1))
    assert given is not None
    assert given.read().repeat_index == 1
    assert index.place(TaskKey(9, 0)) is None


def test_row_describes_conversation(run: Path) -> None:
    row = index_of(run).select(Filter(task=(1,)), columns=["difficulty", "is_hard", "missing"]).rows[0]
    expected = {
        "agent": "counter_agent", "reward": 0.5, "steps": 2, "tool_calls": 1, "input_tokens": 10, "output_tokens": 5,
        "title": "Question 1 with spaces", "is_masked": False, "star": False, "tags": [], "has_comment": False,
        "fields": {"difficulty": "none", "is_hard": False},
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_filters_select_rollouts(run: Path) -> None:
    index = index_of(run)
    expected = {
        "task=1": ["1:0", "1:1"],
        "repeat=1&outcome=scored": ["0:1", "1:1"],
        "outcome=failed&outcome=unresolved": ["2:0", "2:1"],
        "failure=lost": ["2:0"],
        "tier=environment&server=counter": ["2:0"],
        "tool=increment": ["0:0", "0:1", "1:0", "1:1"],
        "tool=other": [],
        "reward_min=0.5&reward_max=0.9": ["1:0"],
        "steps_min=3": [],
        "steps_max=2&agent=counter_agent": ["0:0", "0:1", "1:0", "1:1"],
        "field=metadata.subset=algebra&field=metadata.subset=geometry": ["0:0", "0:1"],
        "field=metadata.subset=algebra&field=difficulty=3": ["0:0"],
        "field=metadata.subset=algebra&field=difficulty=11": [],
        "field=is_hard=true": ["0:0"],
        "field=is_hard=false": ["1:0"],
        "field=difficulty=none": ["1:0"],
        "field=unknown=1": [],
    }
    assert {query: keys(index, query) for query in expected} == expected


def test_orders_put_missing_values_last(run: Path) -> None:
    index = index_of(run)
    assert keys(index, sort="reward") == ["0:0", "1:0", "0:1", "1:1", "2:0", "2:1"]
    assert keys(index, sort="reward", is_descending=True) == ["0:1", "1:1", "1:0", "0:0", "2:0", "2:1"]
    assert keys(index, sort="task", is_descending=True) == ["2:1", "2:0", "1:1", "1:0", "0:1", "0:0"]
    assert index.select(Filter(), "difficulty", limit=2).rows == index.select(Filter(), "difficulty").rows[:2]
    assert keys(index, "task=0&task=1", sort="difficulty") == ["0:0", "0:1", "1:0", "1:1"]
    with pytest.raises(UsageError, match=r"sort=rewards: not a column of this run\. Did you mean 'reward'\?"):
        index.select(Filter(), "rewards")


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("sort", ["task", "reward", "difficulty", "failure"])
def test_neighbours_follow_the_table(run: Path, sort: str, is_descending: bool) -> None:
    index = index_of(run)
    rows = index.select(Filter(), sort, is_descending=is_descending).rows
    order = [TaskKey(row["task"], row["repeat"]) for row in rows]
    for before, key, after in zip([None, *order], order, [*order[1:], None], strict=False):
        assert index.neighbours(key, Filter(), sort, is_descending=is_descending) == (before, after)


def test_deep_pages_continue_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 12_000
    index = index_of(write(tmp_path / "x.jsonl", *(planned(task) | {"reward": task % 7} for task in range(count))))
    expected = sorted(range(count), key=lambda task: (task % 7, task))
    rows = index.select(Filter(), "reward", offset=11_000, limit=50).rows
    assert [row["task"] for row in rows] == expected[11_000:11_050]
    assert index.select(Filter(), "reward", offset=count, limit=50).rows == []


def test_appended_lines_are_indexed(run: Path) -> None:
    index = index_of(run)
    append(run, scored(2, 0, 0.25, metadata={"subset": "algebra"}))
    append(run.with_name("x_failures.jsonl"), failed(2, 1), failed(0, 0, cause="late"))
    complete(index)
    rows = index.select(Filter(task=(0, 2))).rows
    assert [(row["outcome"], row["reward"], row["attempts"]) for row in rows] == [
        ("scored", 0.0, 1),
        ("scored", 1.0, 0),
        ("scored", 0.25, 2),
        ("failed", None, 0),
    ]
    assert keys(index, "field=metadata.subset=algebra") == ["0:0", "2:0"]


def test_incomplete_line_waits_for_its_rest(run: Path) -> None:
    index = index_of(run)
    line = lines(scored(2, 1))
    with run.open("ab") as file:
        file.write(line[:200])
    complete(index)
    assert keys(index, "outcome=unresolved") == ["2:1"]
    assert messages(index, is_running=True) == []
    assert messages(index) == [(None, "the last line is incomplete (200 bytes), so it is left out.")]
    with run.open("ab") as file:
        file.write(line[200:])
    complete(index)
    assert keys(index, "outcome=unresolved") == []
    assert messages(index) == []


def test_last_line_needs_no_newline(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", scored(0), scored(1))
    path.write_bytes(path.read_bytes().rstrip())
    index = index_of(path)
    assert keys(index) == ["0:0", "1:0"]
    with path.open("ab") as file:
        file.write(b"\n" + lines(scored(2)))
    complete(index)
    assert keys(index) == ["0:0", "1:0", "2:0"]
    assert messages(index) == []


@pytest.mark.parametrize("rows", [[scored(7)], [scored(task, reward=0.0) for task in range(20)]])
def test_rewritten_file_is_indexed_again(run: Path, rows: list[object]) -> None:
    index = index_of(run)
    write(run, *rows)
    complete(index)
    expected = {0} if len(rows) > 1 else {1.0}
    assert {row["reward"] for row in index.select(Filter(outcome=(Outcome.SCORED,))).rows} == expected
    assert keys(index, "field=metadata.subset=geometry") == []


def test_bad_lines_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b"\n".join(
            [
                b"no json", b"[1]", b'{"a": 1}', b"", lines(scored(0))[:-1], b'{"response": {}, "reward": "high"}',
                lines(planned(1 << 50) | {"reward": 1})[:-1], b'\xff\xfe{"reward": 1}', b"",
            ]
        )
    )  # fmt: skip
    index = index_of(path)
    assert keys(index) == ["0:0", "5:0"]
    found = dict(messages(index))
    assert {line: message.split(";")[0] for line, message in found.items()} == {
        1: "not valid JSON (unexpected character).",
        2: "expected a JSON object, found list",
        3: "not a rollout, because it has neither a response nor a reward",
        6: "the reward is missing, too large or not a number.",
        7: f"task {1 << 50}, repeat 0: the numbers are out of range",
        8: found[8].split(";")[0],
    } | {1: found[1].split(";")[0]}
    assert "not valid JSON" in found[1]
    assert "not valid JSON" in found[8]


def test_hostile_rows_are_indexed(tmp_path: Path) -> None:
    odd = {"output": [{"type": {}, "role": []}, None, {"type": "function_call", "name": 3}], "usage": [], "model": 1}
    rows = [
        {"response": odd, "reward": 1, "agent_ref": "x", "responses_create_params": {"input": [{"role": "user"}]}},
        {"response": None, "reward": 2, "huge": 1 << 63, "responses_create_params": {"input": {"a": 1}}},
        {"response": {}, "reward": 3, "_ng_seconds": "long", "name'); DROP TABLE rollouts;": 1, "ng_trajectory": []},
        *({"response": {}, "reward": 0, **{f"field_{task}_{n}": n for n in range(40)}} for task in range(15)),
    ]
    index = index_of(write(tmp_path / "x.jsonl", *rows))
    assert len(keys(index)) == len(rows)
    assert keys(index, "field=name'); DROP TABLE rollouts;=1") == ["2:0"]
    assert index.select(Filter(), columns=["huge"]).rows[1]["fields"] == {"huge": float(1 << 63)}
    assert messages(index) == [
        (None, "too many fields, so field_10_0, field_10_1, field_10_10 and others are not available as columns.")
    ]


def test_long_line_is_scanned(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as file:
        file.write(b'{"agent_ref": {"type": "a", "name": "long_agent"}, "response": {"output": "')
        for _ in range(40):
            file.write(b"x" * (1 << 20))
        file.write(b' \\"reward\\": 9"}, "reward": 0.25, "_ng_task_index": 4, "_ng_rollout_index": 1}\n')
        file.write(lines(scored(0)))
    index = index_of(path)
    row = index.select(Filter(task=(4,))).rows[0]
    assert (row["repeat"], row["reward"], row["agent"], row["bytes"] > 40 << 20) == (1, 0.25, "long_agent", True)
    assert messages(index) == [(1, "the line has 42 MB; only its numbers, agent and reward are indexed.")]
    assert index.place(TaskKey(0, 0)) is not None


@pytest.mark.parametrize("content", [b"not SQLite at all" * 1000, None])
def test_damaged_index_is_made_again(run: Path, content: bytes | None) -> None:
    index = index_of(run)
    index.path.with_name(f"{index.path.name}-wal").unlink(missing_ok=True)
    if content is None:
        # Another version of the index, or another program's tables.
        with sqlite3.connect(index.path) as db:
            db.execute("PRAGMA user_version = 99")
            db.execute("UPDATE rollouts SET reward = 7")
    else:
        index.path.write_bytes(content)
    complete(index)
    assert [row["reward"] for row in index.select(Filter()).rows] == [0.0, 1.0, 0.5, 1.0, None, None]


def test_damage_while_open_is_a_clear_error(run: Path) -> None:
    index = index_of(run)
    with sqlite3.connect(index.path) as db:
        db.execute("DROP TABLE titles")
    with pytest.raises(DataError, match="the index was damaged and will be rebuilt"):
        index.select(Filter())
    complete(index)
    assert len(keys(index)) == 6


def test_two_viewers_share_an_index(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", *(scored(task, reward=task % 2) for task in range(3000)))
    indexes = [index_of(write(tmp_path / "y.jsonl")), index_of(write(tmp_path / "y.jsonl"))]
    path.rename(tmp_path / "y.jsonl")
    workers = [Thread(target=complete, args=(index,)) for index in indexes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [index.count(Filter()) for index in indexes] == [3000, 3000]
    assert indexes[0].census().mean_reward == 0.5


def test_query_ends_when_client_leaves(run: Path) -> None:
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000000) SELECT MAX(i) FROM n"
    with pytest.raises(Cancelled), index_of(run).selection(Filter(), lambda: True) as (db, _):
        db.execute(count).fetchone()
