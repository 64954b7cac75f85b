"""Tests of exported training data: the formats, the filters, the sums, and the split by task."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nemo_gym.errors import DataError
from nemo_gym.jsonl import write_rows
from nemo_gym.testing import call, heard, reply
from nemo_gym.training.dataset import DatasetJob, export_dataset
from nemo_gym.training.formats import FORMATS
from tests.each_case import each_case
from tests.rows import rows_of

FUNCTION = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": FUNCTION}]
USED = call("look", at="sky")
ROLLOUTS = st.lists(
    st.fixed_dictionaries(
        {
            "task": st.integers(0, 4),
            "text": st.sampled_from("abc"),
            "reward": st.sampled_from([0.0, 0.5, 1.0]),
            "mask_sample": st.booleans(),
            "prompt": st.sampled_from(["p", "q"]),
        }
    ),
    max_size=25,
)


def asked(task, prompt=None, **params):
    return {"responses_create_params": {"input": prompt or f"task {task}", **params}, "_ng_task_index": task}


def done(task, text, reward, *, prompt=None, before=(), **fields):
    params = {"tools": [{"type": "function", **FUNCTION}], "parallel_tool_calls": True} if USED in before else {}
    response = reply(*before, text).model_dump(mode="json")
    return {**asked(task, prompt, **params), "response": response, "reward": reward, **fields}


def failed(task, cause="timeout"):
    return {**asked(task), "_ng_failure_class": cause}


@pytest.fixture
def export(tmp_path):
    """Return a function that exports rows, and returns the report and the examples of both sides."""

    def exported(rows, failures=(), **given):
        write_rows(tmp_path / "x.jsonl", rows)
        if failures:
            write_rows(tmp_path / "x_failures.jsonl", failures)
        files = {"input_jsonl_fpath": tmp_path / "x.jsonl", "output_jsonl_fpath": tmp_path / "out.jsonl"}
        report = export_dataset(DatasetJob(**{"format": "messages", "overwrite": True, **files, **given}))
        sides = [rows_of(path) for path in report.examples]
        assert [len(side) for side in sides] == list(report.examples.values())
        return report, *sides

    return exported


def texts(examples, key="messages"):
    return [example[key][-1]["content"] for example in examples]


USER = {"role": "user", "content": "task 0"}
GOOD, BAD = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}


@each_case(
    ("name", "example"),
    [
        ("messages", {"messages": [USER, GOOD]}),
        ("prompt_completion", {"prompt": [USER], "completion": [GOOD]}),
        ("preference", {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}),
        ("unpaired", {"prompt": [USER], "completion": [GOOD], "label": True}),
        ("nemo_rl_sft", {"messages": [USER, GOOD]}),
        (
            "nemo_rl_preference",
            {
                "context": [USER],
                "completions": [{"rank": 0, "completion": [GOOD]}, {"rank": 1, "completion": [BAD]}],
            },
        ),
        ("openai", {"messages": [USER, GOOD]}),
        (
            "openai_preference",
            {"input": {"messages": [USER]}, "preferred_output": [GOOD], "non_preferred_output": [BAD]},
        ),
    ],
)
def test_each_format_has_its_fields(export, name, example):
    _, examples = export([done(0, "bad", 0.0), done(0, "good", 1.0)], format=name, min_reward=0.5)
    assert examples[0] == example
    assert [each["label"] for each in examples[1:]] == ([False] if name == "unpaired" else [])


@each_case(("method", "name"), [("sft", "messages"), ("dpo", "preference"), ("kto", "unpaired")])
def test_methods_are_names_of_formats(export, method, name):
    rows = [done(0, "bad", 0.0), done(0, "good", 1.0)]
    assert export(rows, format=method, min_reward=0.5) == export(rows, format=name, min_reward=0.5)


def test_every_format_is_a_setting():
    assert set(DatasetJob.model_fields["format"].annotation.__args__) == set(FORMATS)


def test_tool_calls_have_objects_or_text_as_arguments(export):
    for name, arguments in (("messages", {"at": "sky"}), ("openai", '{"at":"sky"}')):
        _, (example,) = export([done(0, "Blue.", 1.0, before=[USED])], format=name)
        assert example["tools"] == TOOLS
        function = example["messages"][1]["tool_calls"][0]["function"]
        assert function == {"name": "look", "arguments": arguments}
        assert example.get("parallel_tool_calls") == (True if name == "openai" else None)


def test_openai_preference_takes_single_messages(export):
    rows = [done(0, "bad", 0.0), done(0, "good", 1.0), done(0, "long", 1.0, before=["Hm.", heard("So?")])]
    report, (example,) = export(rows, format="openai_preference")
    assert example["preferred_output"] == [GOOD]
    assert report.dropped == {"more than one message (openai_preference)": 1}


@each_case(("name", "reasoning", "is_kept"), [("messages", None, True), ("openai", None, False),
    ("messages", "drop", False), ("openai", "keep", True)])  # fmt: skip
def test_reasoning_stays_except_for_openai(export, name, reasoning, is_kept):
    row = done(0, "42", 1.0)
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
    row["response"]["output"].insert(0, thought)
    _, examples = export([row], format=name, reasoning=reasoning)
    assert texts(examples) == ["<think>Hm.</think>42" if is_kept else "42"]


def test_each_dropped_rollout_has_its_reason(export):
    rows = [
        done(0, "a", 1.0),
        done(0, "b", 0.9),
        done(0, "c", 0.8),
        done(0, "a", 1.0),
        done(0, "d", 0.1),
        done(1, "e", 1.0, mask_sample=True),
        done(1, "i", 1.0, instance_config={"mask_sample": True}),
        done(1, "j", 1.0, instance_config="not ours", subset="hard"),
        done(1, "f", float("nan")),
        done(1, "g", 1.0, subset="hard"),
        {**done(1, "h", 1.0), "response": reply("h").model_dump(mode="json") | {"status": "incomplete"}},
        failed(2, "judge_failed"),
    ]
    filters = {"min_reward": 0.5, "max_per_task": 2, "where": "subset != 'hard'"}
    report, examples = export(rows, [failed(2), failed(2), failed(3, "lost")], **filters)
    assert texts(examples) == ["a", "b"]
    assert report.dropped == {
        "more than max_per_task": 1,
        "duplicate": 1,
        "below min_reward": 1,
        "masked (mask_sample)": 2,
        "without a reward": 1,
        "where": 2,
        "incomplete answer": 1,
        "failed (judge_failed)": 1,
        "failed (timeout)": 2,
        "failed (lost)": 1,
    }
    assert (report.read, report.kept) == (15, 2)


def test_pairs_share_task_and_prompt(export):
    rows = [done(0, "a", 1.0), done(0, "b", 0.0, prompt="changed"), done(1, "a", 1.0), done(2, "c", 0.0)]
    with pytest.raises(DataError, match="no example is left of 4 rollouts: 4 only rollout of its prompt"):
        export(rows, format="preference")
    report, examples = export([*rows, done(1, "d", 0.5)], format="preference")
    assert [(texts([each], "chosen"), texts([each], "rejected")) for each in examples] == [(["a"], ["d"])]
    assert (report.read, report.kept, report.dropped["only rollout of its prompt"]) == (5, 2, 3)


def test_equal_pairs_of_two_tasks_count_once(export):
    rows = [done(task, text, reward, prompt="same") for task in (0, 1) for text, reward in (("a", 1.0), ("b", 0.0))]
    report, examples = export(rows, format="preference")
    assert (len(examples), report.kept, report.dropped) == (1, 2, {"duplicate": 2})


def test_rows_without_number_are_grouped_by_prompt(export):
    rows = [done(task, text, reward) for task in (0, 1) for text, reward in (("a", 1.0), ("b", 0.0))]
    for row in rows:
        del row["_ng_task_index"]
    _, examples = export(rows, format="preference")
    assert [each["prompt"][0]["content"] for each in examples] == ["task 0", "task 1"]


@pytest.mark.parametrize("name", ["messages", "unpaired", "preference"])
@settings(max_examples=30)
@given(rollouts=ROLLOUTS, limit=st.sampled_from([None, 1, 2]), share=st.sampled_from([0.0, 0.3, 0.9]))
def test_sums_add_up_and_tasks_stay_together(tmp_path_factory, name, rollouts, limit, share):
    folder = tmp_path_factory.mktemp("export")
    prompted = [{**each, "prompt": f"{each['prompt']} of {each['task']}"} for each in rollouts]
    write_rows(folder / "x.jsonl", [done(**each) for each in prompted])
    write_rows(folder / "x_failures.jsonl", [failed(each["task"]) for each in rollouts[::3]])
    limits = {"pairs": limit or "all"} if name == "preference" else {"max_per_task": limit, "min_reward": 0.5}
    job = DatasetJob(
        input_jsonl_fpath=folder / "x.jsonl",
        output_jsonl_fpath=folder / "out.jsonl",
        format=name,
        validation_share=share,
        **limits,
    )
    try:
        report = export_dataset(job)
    except DataError as error:
        assert "no example is left" in str(error) or "all examples are of one task" in str(error)  # noqa: PT017
        assert not list(folder.glob("out*"))
        return
    assert report.read == len(rollouts) + len(rollouts[::3])
    assert report.read == report.kept + report.dropped.total()
    sides = [rows_of(path) for path in report.examples]
    examples = [example for side in sides for example in side]
    assert len({str(example) for example in examples}) == len(examples) == sum(report.examples.values())
    if name != "preference":
        assert report.kept == len(examples)
    tasks = [
        Counter((example.get("messages") or example["prompt"])[0]["content"].rpartition(" ")[2] for example in side)
        for side in sides
    ]
    assert len(sides) == (2 if share else 1)
    assert all(tasks)
    assert not share or not tasks[0].keys() & tasks[1].keys()


def test_seed_decides_the_split(export):
    rows = [done(task, "a", 1.0) for task in range(40)]
    sides = {seed: export(rows, validation_share=0.25, seed=seed)[1:] for seed in (0, 0, 1)}
    assert [len(side) for side in sides[0]] == [30, 10]
    assert export(rows, validation_share=0.25, seed=0)[1:] == sides[0]
    assert sides[0] != sides[1]
    # Most of the tasks stay on their side if the collection grows.
    _, _, grown = export([*rows, done(40, "a", 1.0)], validation_share=0.25)
    assert len([example for example in grown if example in sides[0][1]]) >= 9


def test_nothing_is_written_if_nothing_is_left(export, tmp_path):
    with pytest.raises(
        DataError, match=r"x.jsonl: no example is left of 2 rollouts: 1 below min_reward, 1 failed \(timeout\)\."
    ):
        export([done(0, "a", 0.0)], [failed(1)], min_reward=0.5)
    with pytest.raises(DataError, match="cannot be split"):
        export([done(0, "a", 0.0)], validation_share=0.5)
    assert not (tmp_path / "out.jsonl").exists()


def test_earlier_output_and_collection_are_kept(export, tmp_path):
    rows = [done(0, "a", 1.0), done(1, "a", 1.0)]
    export(rows)
    with pytest.raises(DataError, match=r"out\.jsonl already exists\. Add --overwrite"):
        export(rows, overwrite=False)
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out_validation.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"out_validation\.jsonl already exists"):
        export(rows, overwrite=False, validation_share=0.5)
    for name in ("x", "x_failures", "x_materialized_inputs"):
        with pytest.raises(DataError, match=f"{name}.jsonl is one of the input files"):
            export(rows, output_jsonl_fpath=tmp_path / f"{name}.jsonl")


@each_case(
    ("rows", "filters", "message"),
    [
        ([done(0, "a", 1.0), asked(1)], {}, "x.jsonl:2: not a rollout: 'reward' is missing"),
        ([{**asked(1), "reward": 1.0}], {}, "x.jsonl:1: not a rollout: 'response' is missing"),
        ([done(0, "a", 1.0)], {"where": "rewerd > 0"}, "x.jsonl:1: where: the row has no field 'rewerd'"),
        ([done(0, "a", 1.0)], {"where": "subset == 'a'"}, "x.jsonl: where: no row has the field subset."),
        ([[]], {}, "x.jsonl:1: expected a JSON object, found list"),
    ],
)
def test_bad_rows_are_reported_with_their_line(export, rows, filters, message):
    with pytest.raises(DataError, match=message):
        export(rows, **filters)


@each_case(
    ("words", "message"),
    [
        ({"format": "messages", "pairs": 3}, "pairs applies to formats of pairs only, not to messages"),
        ({"format": "unpaired", "min_reward": 1, "min_difference": 0.1}, "min_difference applies to formats of pairs"),
        ({"format": "preference", "max_per_task": 3}, "max_per_task does not apply to formats of pairs; use pairs=N"),
        ({"format": "unpaired"}, "min_reward is missing: in unpaired"),
        ({"format": "messages", "where": "reward >"}, "'reward >' is not a condition"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(tmp_path, words, message):
    files = {"input_jsonl_fpath": tmp_path / "x.jsonl", "output_jsonl_fpath": tmp_path / "out.jsonl"}
    with pytest.raises(ValidationError, match=message):
        DatasetJob(**files, **words)
