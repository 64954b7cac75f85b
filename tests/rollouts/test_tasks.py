"""Turning rows into tasks: their content, their task and repeat numbers, and invalid rows."""

from __future__ import annotations

import gc
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym import jsonl
from nemo_gym.config.models import DatasetConfig
from nemo_gym.data.gather import AgentDataset, rows_of
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.jsonl import write_rows
from nemo_gym.rollouts.amending import place_of
from nemo_gym.rollouts.job import CollectionSettings
from nemo_gym.rollouts.tasks import TaskPlan
from tests.each_case import each_case

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
        return [task.fields for task in plan_of(*rows, **settings).rows()]

    return make


@pytest.fixture
def refusal_of(plan_of, tmp_path):
    """Return a function that returns a plan's error with a short path. Both entry points must reject the plan."""

    def make(*rows: Row | bytes, **settings: Any) -> str:
        plan = plan_of(*rows, **settings)
        with pytest.raises(DataError) as error:
            plan.check()
        with pytest.raises(DataError):
            next(plan.rows())
        return str(error.value).replace(f"{tmp_path}/", "")

    return make


@pytest.fixture
def prompt(tmp_path) -> str:
    path = tmp_path / "prompt.yaml"
    path.write_text("system: Answer in {language}.\nuser: 'Solve: {question} {{n}}'\n")
    return str(path)


def keys(tasks: list[Row]) -> list[tuple[int, int]]:
    return [(task["_ng_task_index"], task["_ng_rollout_index"]) for task in tasks]


# Content of a task


def test_row_is_kept_and_gets_its_key(tasks_of):
    given = row(verifier_metadata={"answer": 4}, note=[1, {"a": None}])
    assert tasks_of(given) == [{**given, "_ng_task_index": 0, "_ng_rollout_index": 0}]


def test_limit_counts_rows_and_skips_blank_lines(tasks_of):
    assert len(tasks_of(row("a"), b"", row("b"), row("c"), limit=2)) == 2


def test_rows_beyond_the_limit_are_not_checked(tasks_of):
    assert len(tasks_of(row("a"), b"not JSON", limit=1)) == 1


def test_prompt_creates_missing_inputs(tasks_of, prompt):
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


def test_rows_without_agent_get_the_default_one(tasks_of):
    unnamed = {"responses_create_params": {"input": "x"}}
    tasks = tasks_of(row(), unnamed, {**unnamed, "agent_ref": None, "n": 1}, agent_name="code_agent")
    assert [task["agent_ref"] for task in tasks] == [MATH, CODE, CODE]


def test_parameters_override_row_values_one_level_deep(tasks_of):
    given = row()
    given["responses_create_params"] |= {"temperature": 1.0, "top_p": 0.9, "metadata": {"a": "1", "b": "2"}}
    (task,) = tasks_of(given, responses_create_params={"temperature": 0.0, "metadata": {"c": "3"}})
    assert task["responses_create_params"] == {
        "input": "2 + 2", "temperature": 0.0, "top_p": 0.9, "metadata": {"c": "3"},
    }  # fmt: skip


def test_skills_are_recorded_in_every_row(tasks_of, tmp_path):
    (tmp_path / "skills" / "sum").mkdir(parents=True)
    (tmp_path / "skills" / "sum" / "SKILL.md").write_text("---\nname: sum\nversion: 1.0\n---\nAdd.")
    one, two = tasks_of(row("a"), row("b"), skills={"path": str(tmp_path / "skills")})
    assert one["skills_ref"] == two["skills_ref"]
    assert one["skills_ref"]["path"] == str(tmp_path / "skills")
    assert len(one["skills_ref"]["hash"]) == 12
    assert one["skills_ref"]["skills"] == [{"name": "sum", "description": None, "version": "1.0"}]


def test_outcome_fields_of_earlier_runs_are_removed(tasks_of):
    failure = row(
        _ng_task_index=7, _ng_rollout_index=3, _ng_attempt_index=2, _ng_failure_class="timeout",
        _ng_failure_judge_error="silent",
        _ng_failure_message="late", _ng_failure_server="a", _ng_failure_terminal=True, _ng_no_persist=True,
    )  # fmt: skip
    assert tasks_of(failure) == [row(_ng_task_index=7, _ng_rollout_index=0)]


# Numbers of tasks and repeats


def test_repeats_of_a_task_are_consecutive(tasks_of):
    tasks = tasks_of(row("a"), row("b"), num_repeats=3)
    assert keys(tasks) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [task["responses_create_params"]["input"] for task in tasks] == ["a"] * 3 + ["b"] * 3


@each_case(
    ("settings", "rollouts"),
    [
        ({"num_repeats": 99999999999}, "199,999,999,998"),
        ({"num_repeats": {"math_agent": 10_000_000, "_default": 1}}, "10,000,001"),
        ({"num_repeats": {"code_agent": 1, "_default": 10_000_000}}, "10,000,001"),
        ({"num_repeats": 10_000_001, "limit": 1}, "10,000,001"),
    ],
)
def test_huge_plan_needs_yes(plan_of, settings, rollouts):
    notices: list[str] = []
    plan = replace(plan_of(row("a"), row("b", agent_ref=CODE), **settings), notice=notices.append)
    with pytest.raises(DataError) as error:
        next(plan.rows())
    assert str(error.value).startswith(f"the plan has {rollouts} rollouts. Add --yes")
    assert notices[0].startswith(f"plan: {rollouts} rollouts of {settings.get('limit', 2)} rows, in ")
    confirmed = replace(plan, settings=plan.settings.model_copy(update={"yes": True}))
    assert next(confirmed.rows()).fields["_ng_rollout_index"] == 0


def test_small_plan_is_not_announced(plan_of):
    notices: list[str] = []
    plan = replace(plan_of(row("a"), row("b"), num_repeats=50_000), notice=notices.append)
    assert next(plan.rows()).fields["_ng_rollout_index"] == 0
    assert notices == []


def test_repeats_can_be_set_per_agent(tasks_of):
    tasks = tasks_of(row("a"), row("b", agent_ref=CODE), num_repeats={"math_agent": 2, "_default": 1})
    assert keys(tasks) == [(0, 0), (0, 1), (1, 0)]


def test_identical_lines_are_one_task(tasks_of):
    tasks = tasks_of(row("a"), row("b"), row("a"), row("c"), row("b"), row("a"))
    assert keys(tasks) == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]


def test_repeats_of_identical_lines_continue_counting(tasks_of):
    assert keys(tasks_of(row("a"), row("a"), num_repeats=2)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_own_index_of_a_row_is_kept(tasks_of):
    tasks = tasks_of(row("a", _ng_task_index=5), row("b", _ng_task_index=2), row("c", _ng_task_index=5))
    assert keys(tasks) == [(5, 0), (2, 0), (5, 1)]


def test_new_indices_avoid_those_of_other_rows(tasks_of):
    tasks = tasks_of(row("a"), row("b", _ng_task_index=0), row("c"), row("d", _ng_task_index=2), num_repeats=2)
    assert keys(tasks) == [(1, 0), (1, 1), (0, 0), (0, 1), (3, 0), (3, 1), (2, 0), (2, 1)]


def test_every_key_is_unique(tasks_of):
    rows = [row(str(n % 7), **({"_ng_task_index": n % 5} if n % 3 else {})) for n in range(60)]
    tasks = tasks_of(*rows, num_repeats=3)
    assert len(tasks) == len(set(keys(tasks))) == 180


def test_each_repeat_gets_a_seed_in_its_metadata(tasks_of):
    given = row()
    given["responses_create_params"]["metadata"] = {"a": "1", "extra_body": '{"min_p": 0.1}'}
    tasks = tasks_of(given, row("b"), num_repeats=2, num_repeats_add_seed=True)
    metadata = [task["responses_create_params"]["metadata"] for task in tasks]
    assert [orjson.loads(each["extra_body"]) for each in metadata] == [
        {"min_p": 0.1, "seed": 0}, {"min_p": 0.1, "seed": 1}, {"seed": 0}, {"seed": 1},
    ]  # fmt: skip
    assert [each.get("a") for each in metadata] == ["1", "1", None, None]


def test_place_of_a_task_is_its_first_line(plan_of, prompt, tmp_path):
    raw = [{"question": text, "language": "German", "agent_ref": MATH} for text in ("a", "b", "b")]
    plan = plan_of(*raw, prompt_config=prompt, num_repeats=2, num_repeats_add_seed=True)
    places = [str(place_of(plan, task)).removeprefix(f"{tmp_path}/") for task in plan.rows()]
    assert places == ["in.jsonl:1"] * 2 + ["in.jsonl:2"] * 4
    failed = next(plan.rows()).with_failure("invalid_task", "no", server=None, tier=None, may_retry=False)
    assert place_of(plan, failed) == f"{tmp_path}/in.jsonl:1"
    plan.input.unlink()
    assert place_of(plan, failed) is None


def test_place_of_a_copied_task_is_its_source(plan_of, prompt, tmp_path):
    datasets = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.jsonl"
        write_rows(path, [{"question": text, "language": name} for text in "ab"])
        config = DatasetConfig(name=name, type="example", jsonl_fpath=str(path), num_repeats=2, prompt_config=prompt)
        datasets.append(AgentDataset("math_agent", config, path))
    plan = replace(plan_of(), datasets=datasets)
    assert write_rows(plan.input, rows_of(datasets, copies=True)) == 8
    tasks = list(plan.rows())
    expected = [f"{tmp_path}/{name}.jsonl:{line}" for name in ("first", "second") for line in (1, 1, 2, 2)]
    assert [place_of(plan, task) for task in tasks] == expected
    # If the source has changed, the copy still has the row.
    datasets[0].path.unlink()
    assert place_of(plan, tasks[2]) == f"{plan.input}:3"


# Invalid rows


def test_all_problems_are_reported_with_file_and_line(refusal_of):
    message = refusal_of(
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
        {"response_create_params": {"input": "x"}, "agent_ref": MATH},
    )
    expected = {
        "3": "--agent …",
        "4:12": "not valid JSON",
        "5": "Did you mean 'math_agent'?",
        "6": "responses_create_params.input: it is missing",
        "7": "expected a JSON object, found list",
        "8": "responses_create_params must be an object, found list",
        "9": "_ng_task_index must be an integer of at least 0, found '7'",
        "10": "'no spaces' is not a rollout id",
        "11": "agent_ref must be {name: AGENT}, found 'math_agent'",
        "12": "responses_create_params is missing. Is 'response_create_params' a typo for it?",
    }
    for line, (place, words) in zip(message.splitlines(), expected.items(), strict=True):
        assert line.startswith(f"in.jsonl:{place}: ")
        assert words in line


@each_case("index", ["-1", "1.5", "true", '"3"', "[]", str(2**70)])
def test_index_must_be_a_nonnegative_integer(refusal_of, index):
    message = refusal_of(b'{"responses_create_params": {"input": ""}, "_ng_task_index": %b}' % index.encode())
    assert message.startswith("in.jsonl:1: _ng_task_index must be an integer of at least 0, found ")


def test_first_problems_are_listed_and_others_counted(refusal_of):
    lines = refusal_of(*(row(_ng_task_index=str(number)) for number in range(5000))).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "… and 4990 more rows."


def test_problem_of_many_rows_is_reported_once(refusal_of):
    wrong = row(agent_ref={"name": "math_agnet"})
    message = refusal_of(row(), wrong, wrong, b"x", wrong, b"x")
    first, second = message.splitlines()
    assert first == "in.jsonl:2: agent 'math_agnet' is not running. Did you mean 'math_agent'? (and 2 more rows)"
    assert second.startswith("in.jsonl:4:1: not valid JSON")
    assert second.endswith(" (and 1 more row)")


@each_case(
    ("line", "key"),
    [
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"a": {"b": 1, "c": [{"d": 1, "d": 1}]}}', "d"),
        (b'{"a": 1, "\\u0061": 2}', "a"),
        (b'{"a" :1, "a" : "{\\"a\\":2}"}', "a"),
    ],
)
def test_repeated_key_is_rejected(refusal_of, line, key):
    message = refusal_of(row(), line)
    assert message.startswith(f"in.jsonl:2: the key '{key}' occurs more than once in one object")


def test_equal_keys_of_different_objects_are_accepted(tasks_of):
    assert len(tasks_of(row(a={"a": [{"a": 1}, {"a": '"a": 1, "a":2'}]}))) == 1


def test_input_in_addition_to_prompt_is_rejected(refusal_of, prompt):
    raw = {"question": "q", "language": "German", "agent_ref": MATH}
    message = refusal_of(raw, row(), raw, row(), prompt_config=prompt)
    assert message.startswith("in.jsonl:2: prompt_config is set, but the row has responses_create_params.input")
    assert message.endswith(" (and 1 more row)")


def test_missing_prompt_field_reports_available_ones(refusal_of, prompt):
    message = refusal_of({"question": "q", "lang": "German", "agent_ref": MATH}, prompt_config=prompt)
    assert message == "in.jsonl:1: the prompt uses 'language', but the row has only: agent_ref, lang, question."


def test_agent_missing_in_num_repeats_is_reported(refusal_of):
    message = refusal_of(row(), row(agent_ref=CODE), num_repeats={"math_agent": 2})
    assert message == "in.jsonl:2: num_repeats does not list agent 'code_agent'. Add it, or _default."


def test_agent_not_running_is_reported_with_running_ones(refusal_of):
    message = refusal_of(row(agent_ref={"name": "zzz"}))
    assert message == "in.jsonl:1: agent 'zzz' is not running. Running agents: code_agent, math_agent."


@pytest.mark.parametrize("agent", [{"name": "zzz"}, None])
def test_run_without_agents_is_reported_with_advice(plan_of, agent):
    plan = replace(plan_of(row(agent_ref=agent)), agents=())
    with pytest.raises(DataError, match=r"The run has no agent\. Start its servers with a config that defines one\."):
        plan.check()


def test_unknown_default_agent_is_reported_once(plan_of):
    plan = plan_of(row(agent_ref=None), row(agent_ref=None), agent_name="math_agnt")
    with pytest.raises(ConfigError) as error:
        plan.check()
    assert str(error.value) == "agent_name: agent 'math_agnt' is not running. Did you mean 'math_agent'?"
    plan_of(row(), agent_name="math_agnt").check()


def test_key_of_a_policy_does_not_belong_in_a_file(refusal_of):
    message = refusal_of(row(policy_base_url="http://127.0.0.1:9/v1", policy_api_key="made-up-key"))
    assert message.startswith("in.jsonl:1: policy_api_key does not belong in a file")
    assert "made-up-key" not in message


@pytest.mark.parametrize("opening", ["[", "{"])
def test_multiline_document_is_reported_once_with_advice(refusal_of, opening):
    message = refusal_of(opening.encode(), b'  {"responses_create_params": {', b"]")
    assert message.startswith("in.jsonl:1: a JSON document of several lines starts here")
    assert "jq -c" in message
    assert "\n" not in message


def test_invalid_overrides_are_reported(refusal_of):
    message = refusal_of(row(), responses_create_params={"temperature": "hot"})
    assert message.startswith("in.jsonl:1: responses_create_params.temperature: ")


def test_request_problem_reports_path_without_type_names(refusal_of):
    message = refusal_of(row(responses_create_params={"input": [{"role": "user", "content": "a"}, {"role": "user"}]}))
    assert message == "in.jsonl:1: responses_create_params.input.1.content: it is missing; add `content: …`."


@each_case("extra_body", ["{oops", "[1]", "3"])
def test_seed_requires_a_valid_extra_body(refusal_of, extra_body):
    given = row(responses_create_params={"input": "x", "metadata": {"extra_body": extra_body}})
    message = refusal_of(given, num_repeats_add_seed=True)
    assert message.startswith("in.jsonl:1: responses_create_params.metadata.extra_body must be a JSON object")


@pytest.mark.parametrize("lines", [[], [b"", b"  "]])
def test_file_without_rows_is_rejected(refusal_of, lines):
    assert refusal_of(*lines) == "in.jsonl: no rows. Each line must contain one JSON object."


def test_pipe_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    settings = CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        TaskPlan(tmp_path / "pipe", settings, AGENTS).check()


def test_missing_file_is_reported_with_its_path(tmp_path):
    settings = CollectionSettings(output_jsonl_fpath=tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"missing\.jsonl: cannot be read \(No such file or directory\)"):
        TaskPlan(tmp_path / "missing.jsonl", settings, AGENTS).check()


# Large files


def test_only_one_row_is_in_memory(plan_of):
    # The key must be unique, because all dicts of this process are searched for it.
    plan = plan_of(*(row(str(n), one_of_five_hundred=[n]) for n in range(500)), num_repeats=4)
    most = 0
    for count, _ in enumerate(plan.rows()):
        if count % 100 == 0:
            most = max(
                most, sum(1 for thing in gc.get_objects() if type(thing) is dict and "one_of_five_hundred" in thing)
            )
    # The row as read and as prepared, and its current and previous repeat.
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
    assert many - few < 4_500 * 150  # bytes: digests and own indices, but not a row (600 bytes)


def test_row_of_several_megabytes_is_supported(plan_of, tmp_path):
    plan = plan_of(row("x" * 5_000_000), row("y"))
    assert jsonl.write_rows(tmp_path / "tasks.jsonl", (task.fields for task in plan.rows())) == 2
    assert Path(tmp_path / "tasks.jsonl").stat().st_size > 5_000_000


def test_null_type_of_an_input_item_means_absent(tasks_of):
    asked = {"type": None, "id": None, "status": None, "role": "user", "content": "x"}
    assert len(tasks_of(row(responses_create_params={"input": [asked]}))) == 1


def test_item_type_that_is_not_a_text_is_reported(refusal_of):
    message = refusal_of(row(responses_create_params={"input": [{"type": 5, "content": "a"}]}))
    assert message == "in.jsonl:1: responses_create_params.input.0: its type must be a text, such as 'message'."
