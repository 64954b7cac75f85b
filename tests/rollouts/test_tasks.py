"""From rows to tasks: the order of the steps, the numbers of tasks and repeats, and rows that cannot be tasks."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.tasks import TaskPlan

AGENTS = ("math_agent", "code_agent")
MATH = {"type": "responses_api_agents", "name": "math_agent"}
CODE = {"type": "responses_api_agents", "name": "code_agent"}
Row = dict[str, Any]


def row(text: str = "2 + 2", **fields: Any) -> Row:
    return {"responses_create_params": {"input": text}, "agent_ref": MATH, **fields}


@pytest.fixture
def plan_of(tmp_path):
    def make(*rows: Row | bytes, **settings: Any) -> TaskPlan:
        path = tmp_path / "in.jsonl"
        path.write_bytes(b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in rows))
        given = CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl", **settings)
        return TaskPlan(path, given, AGENTS)

    return make


@pytest.fixture
def tasks_of(plan_of):
    def make(*rows: Row | bytes, **settings: Any) -> list[Row]:
        return list(plan_of(*rows, **settings).rows())

    return make


@pytest.fixture
def refusal_of(plan_of, tmp_path):
    """The message of a plan that is refused, the input's path shortened; both ways in must refuse it."""

    def make(*rows: Row | bytes, **settings: Any) -> str:
        plan = plan_of(*rows, **settings)
        with pytest.raises(DataError) as told:
            plan.check()
        with pytest.raises(DataError):
            next(plan.rows())
        return str(told.value).replace(f"{tmp_path}/", "")

    return make


@pytest.fixture
def prompt(tmp_path) -> str:
    path = tmp_path / "prompt.yaml"
    path.write_text("system: Answer in {language}.\nuser: 'Solve: {question} {{n}}'\n")
    return str(path)


def keys(tasks: list[Row]) -> list[tuple[int, int]]:
    return [(task["_ng_task_index"], task["_ng_rollout_index"]) for task in tasks]


# What a task is made of


def test_a_row_goes_through_as_it_is_and_gets_its_key(tasks_of):
    given = row(verifier_metadata={"answer": 4}, note=[1, {"a": None}])
    assert tasks_of(given) == [{**given, "_ng_task_index": 0, "_ng_rollout_index": 0}]


def test_only_the_first_rows_are_taken_and_blank_lines_are_none(tasks_of):
    assert len(tasks_of(row("a"), b"", row("b"), row("c"), limit=2)) == 2


def test_rows_beyond_the_limit_may_be_anything(tasks_of):
    assert len(tasks_of(row("a"), b"not JSON", limit=1)) == 1


def test_a_prompt_makes_the_input_of_rows_that_have_none(tasks_of, prompt):
    raw = {"question": "2 + 2?", "language": "German", "agent_ref": MATH}
    (task,) = tasks_of(raw, prompt_config=prompt, responses_create_params={"temperature": 0.5})
    assert task["responses_create_params"] == {
        "input": [
            {"role": "system", "content": "Answer in German."},
            {"role": "user", "content": "Solve: 2 + 2? {n}"},
        ],
        "temperature": 0.5,
    }
    assert task["question"] == "2 + 2?"


def test_a_row_without_an_agent_gets_the_default_one_and_the_others_keep_theirs(tasks_of):
    unnamed = {"responses_create_params": {"input": "x"}}
    tasks = tasks_of(row(), unnamed, {**unnamed, "agent_ref": None, "n": 1}, agent_name="code_agent")
    assert [task["agent_ref"] for task in tasks] == [MATH, CODE, CODE]


def test_parameters_are_laid_over_a_rows_own_one_level_deep(tasks_of):
    given = row()
    given["responses_create_params"] |= {"temperature": 1.0, "top_p": 0.9, "metadata": {"a": "1", "b": "2"}}
    (task,) = tasks_of(given, responses_create_params={"temperature": 0.0, "metadata": {"c": "3"}})
    assert task["responses_create_params"] == {
        "input": "2 + 2", "temperature": 0.0, "top_p": 0.9, "metadata": {"c": "3"},
    }  # fmt: skip


def test_skills_are_stamped_on_every_row(tasks_of, tmp_path):
    (tmp_path / "skills" / "sum").mkdir(parents=True)
    (tmp_path / "skills" / "sum" / "SKILL.md").write_text("---\nname: sum\nversion: 1.0\n---\nAdd.")
    one, two = tasks_of(row("a"), row("b"), skills={"path": str(tmp_path / "skills")})
    assert one["skills_ref"] == two["skills_ref"]
    assert one["skills_ref"]["path"] == str(tmp_path / "skills")
    assert len(one["skills_ref"]["hash"]) == 12
    assert one["skills_ref"]["skills"] == [{"name": "sum", "description": None, "version": "1.0"}]


def test_what_an_earlier_run_said_of_a_row_is_left_out(tasks_of):
    failure = row(
        _ng_task_index=7, _ng_rollout_index=3, _ng_attempt_index=2, _ng_failure_class="timeout",
        _ng_failure_judge_error="silent",
        _ng_failure_message="late", _ng_failure_server="a", _ng_failure_terminal=True, _ng_no_persist=True,
    )  # fmt: skip
    assert tasks_of(failure) == [row(_ng_task_index=7, _ng_rollout_index=0)]


# Numbers of tasks and repeats


def test_repeats_of_a_task_follow_each_other(tasks_of):
    tasks = tasks_of(row("a"), row("b"), num_repeats=3)
    assert keys(tasks) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [task["responses_create_params"]["input"] for task in tasks] == ["a"] * 3 + ["b"] * 3


def test_repeats_can_be_told_for_each_agent(tasks_of):
    tasks = tasks_of(row("a"), row("b", agent_ref=CODE), num_repeats={"math_agent": 2, "_default": 1})
    assert keys(tasks) == [(0, 0), (0, 1), (1, 0)]


def test_identical_lines_are_one_task_in_order_of_first_appearance(tasks_of):
    tasks = tasks_of(row("a"), row("b"), row("a"), row("c"), row("b"), row("a"))
    assert keys(tasks) == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]


def test_repeats_of_identical_lines_go_on_counting(tasks_of):
    assert keys(tasks_of(row("a"), row("a"), num_repeats=2)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_an_index_that_a_row_brings_is_kept(tasks_of):
    tasks = tasks_of(row("a", _ng_task_index=5), row("b", _ng_task_index=2), row("c", _ng_task_index=5))
    assert keys(tasks) == [(5, 0), (2, 0), (5, 1)]


def test_no_row_gets_an_index_that_another_row_brings(tasks_of):
    tasks = tasks_of(row("a"), row("b", _ng_task_index=0), row("c"), row("d", _ng_task_index=2), num_repeats=2)
    assert keys(tasks) == [(1, 0), (1, 1), (0, 0), (0, 1), (3, 0), (3, 1), (2, 0), (2, 1)]


def test_every_key_is_given_once_whatever_the_rows_bring(tasks_of):
    rows = [row(str(n % 7), **({"_ng_task_index": n % 5} if n % 3 else {})) for n in range(60)]
    tasks = tasks_of(*rows, num_repeats=3)
    assert len(tasks) == len(set(keys(tasks))) == 180


def test_each_repeat_gets_its_own_seed_beside_what_metadata_holds(tasks_of):
    given = row()
    given["responses_create_params"]["metadata"] = {"a": "1", "extra_body": '{"min_p": 0.1}'}
    tasks = tasks_of(given, row("b"), num_repeats=2, num_repeats_add_seed=True)
    metadata = [task["responses_create_params"]["metadata"] for task in tasks]
    assert [orjson.loads(each["extra_body"]) for each in metadata] == [
        {"min_p": 0.1, "seed": 0}, {"min_p": 0.1, "seed": 1}, {"seed": 0}, {"seed": 1},
    ]  # fmt: skip
    assert [each.get("a") for each in metadata] == ["1", "1", None, None]


# Rows that cannot be tasks


def test_all_problems_are_told_together_with_file_and_line(refusal_of):
    told = refusal_of(
        row(),
        b"",
        {"responses_create_params": {"input": "x"}},
        b'{"broken": }',
        row(agent_ref={"name": "math_agnet"}),
        row(responses_create_params={}),
        [1],
        row(responses_create_params=[]),
        row(_ng_task_index="7"),
        row(_ng_rollout_id="no spaces"),
        row(agent_ref="math_agent"),
    )
    expected = {
        "3": "+agent_name=",
        "4:12": "not valid JSON",
        "5": "Did you mean 'math_agent'?",
        "6": "responses_create_params.input: it is missing",
        "7": "expected a JSON object, found list",
        "8": "responses_create_params must be an object, found list",
        "9": "_ng_task_index must be a number from 0, found '7'",
        "10": "'no spaces' is not a rollout id",
        "11": "agent_ref has to be {name: AGENT}, and is 'math_agent'",
    }
    for line, (place, words) in zip(told.splitlines(), expected.items(), strict=True):
        assert line.startswith(f"in.jsonl:{place}: ")
        assert words in line


@pytest.mark.parametrize("index", ["-1", "1.5", "true", '"3"', "[]", str(2**70)])
def test_an_index_must_be_a_number_from_0(refusal_of, index):
    told = refusal_of(b'{"responses_create_params": {"input": ""}, "_ng_task_index": %b}' % index.encode())
    assert told.startswith("in.jsonl:1: _ng_task_index must be a number from 0, found ")


def test_of_many_problems_the_first_are_told_and_the_rest_counted(refusal_of):
    lines = refusal_of(*(b"x" for _ in range(5000))).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "… and 4990 rows more."


def test_an_input_beside_a_prompt_is_refused_by_its_line(refusal_of, prompt):
    raw = {"question": "q", "language": "German", "agent_ref": MATH}
    told = refusal_of(raw, row(), raw, row(), prompt_config=prompt)
    assert [line.split(": ")[0] for line in told.splitlines()] == ["in.jsonl:2", "in.jsonl:4"]
    assert "prompt_config is given, but the row has responses_create_params.input" in told


def test_a_field_that_the_prompt_asks_for_is_told_with_those_there_are(refusal_of, prompt):
    told = refusal_of({"question": "q", "lang": "German", "agent_ref": MATH}, prompt_config=prompt)
    assert told == "in.jsonl:1: the prompt asks for 'language', but the row has only: agent_ref, lang, question"


def test_an_agent_that_num_repeats_leaves_out_is_told(refusal_of):
    told = refusal_of(row(), row(agent_ref=CODE), num_repeats={"math_agent": 2})
    assert told == "in.jsonl:2: num_repeats says nothing of agent 'code_agent'. Add it, or _default."


def test_an_agent_that_is_not_up_is_told_with_those_that_are(refusal_of):
    told = refusal_of(row(agent_ref={"name": "zzz"}))
    assert told == "in.jsonl:1: no agent 'zzz' is up. There are: code_agent, math_agent."


def test_a_setting_that_names_an_agent_that_is_not_up_is_told_once_and_not_of_each_row(plan_of):
    plan = plan_of(row(agent_ref=None), row(agent_ref=None), agent_name="math_agnt")
    with pytest.raises(ConfigError) as told:
        plan.check()
    assert str(told.value) == "agent_name: no agent 'math_agnt' is up. Did you mean 'math_agent'?"
    plan_of(row(), agent_name="math_agnt").check()


@pytest.mark.parametrize("opening", ["[", "{"])
def test_a_document_over_several_lines_is_told_once_with_what_to_do(refusal_of, opening):
    told = refusal_of(opening.encode(), b'  {"responses_create_params": {', b"]")
    assert told.startswith("in.jsonl:1: a JSON document over several lines begins here")
    assert "jq -c" in told
    assert "\n" not in told


def test_overrides_that_make_a_request_unreadable_are_told(refusal_of):
    told = refusal_of(row(), responses_create_params={"temperature": "hot"})
    assert told.startswith("in.jsonl:1: responses_create_params.temperature: ")


def test_the_place_within_a_request_is_told_without_the_names_of_types(refusal_of):
    told = refusal_of(row(responses_create_params={"input": [{"role": "user", "content": "a"}, {"role": "user"}]}))
    assert told == "in.jsonl:1: responses_create_params.input.1.content: it is missing; add `content: …`."


@pytest.mark.parametrize("extra_body", ["{oops", "[1]", "3"])
def test_a_seed_needs_an_extra_body_that_can_be_read(refusal_of, extra_body):
    given = row(responses_create_params={"input": "x", "metadata": {"extra_body": extra_body}})
    told = refusal_of(given, num_repeats_add_seed=True)
    assert told.startswith("in.jsonl:1: responses_create_params.metadata.extra_body must hold a JSON object")


@pytest.mark.parametrize("lines", [[], [b"", b"  "]])
def test_a_file_without_rows_is_refused(refusal_of, lines):
    assert refusal_of(*lines) == "in.jsonl: no rows. Each line must hold one JSON object."


def test_a_pipe_is_refused_since_rows_are_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    settings = CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        TaskPlan(tmp_path / "pipe", settings, AGENTS).check()


def test_a_missing_file_is_told_with_its_path(tmp_path):
    settings = CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"missing\.jsonl: cannot be read \(No such file or directory\)"):
        TaskPlan(tmp_path / "missing.jsonl", settings, AGENTS).check()


# Large files


def test_no_more_than_one_row_is_held_at_a_time(plan_of):
    # A key that no dict of any other test has: all that live in this process are looked at.
    plan = plan_of(*(row(str(n), one_of_five_hundred=[n]) for n in range(500)), num_repeats=4)
    most = 0
    for count, _ in enumerate(plan.rows()):
        if count % 100 == 0:
            most = max(
                most, sum(1 for thing in gc.get_objects() if type(thing) is dict and "one_of_five_hundred" in thing)
            )
    # The row as it was read, as it was prepared, and its current and its last repeat.
    assert most <= 4


def test_memory_does_not_grow_with_the_rows(plan_of):
    def peak_bytes(count: int) -> int:
        plan = plan_of(
            *(row(f"{n} {'x' * 500}", _ng_task_index=n) if n % 2 else row(f"{n} {'x' * 500}") for n in range(count))
        )
        tracemalloc.start()
        try:
            assert sum(1 for _ in plan.rows()) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak_bytes(500), peak_bytes(5_000)
    assert many - few < 4_500 * 150  # bytes: digests and given indices, but never a row (of 600)


def test_a_row_of_megabytes_is_a_task(plan_of, tmp_path):
    plan = plan_of(row("x" * 5_000_000), row("y"))
    assert jsonl.write_rows(tmp_path / "tasks.jsonl", plan.rows()) == 2
    assert Path(tmp_path / "tasks.jsonl").stat().st_size > 5_000_000
