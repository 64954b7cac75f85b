"""Resuming a run whose input has changed: results stay, new rows are added, mixed results are rejected."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nemo_gym.config.subject import RunSubject
from nemo_gym.errors import DataError


def numbered(run):
    """Return the row number of each task."""
    return {row["_ng_task_index"]: row["number"] for row in run.results}


def for_agent(name):
    return {"agent_ref": {"type": "responses_api_agents", "name": name}}


# Accepted changes


@pytest.mark.parametrize("before", [{"num_repeats": 2}, {"limit": 3, "num_repeats": 2}, {"num_repeats": {"sound": 2}}])
async def test_more_repeats_are_added_to_existing_ones(run_tasks, run_again, make_task, agent, before):
    first = await run_tasks([make_task(n) for n in range(3)], **before)
    lines = first.files.results.read_bytes()
    agent.begin_again()
    run = await run_again(num_repeats=4)
    assert run.files.results.read_bytes().startswith(lines)
    assert run.keys == [(n, repeat) for n in range(3) for repeat in range(4)]
    assert sorted(agent.state()["begun"]) == [f"{n}-{repeat}" for n in range(3) for repeat in (2, 3)]
    assert (run.summary.planned, run.summary.kept) == (12, 6)
    assert run.notes == ["rollouts added to the earlier run: 6"]


async def test_larger_limit_adds_rows(run_tasks, run_again, make_task, agent):
    await run_tasks([make_task(n) for n in range(5)], limit=2)
    agent.begin_again()
    run = await run_again(limit=4)
    assert numbered(run) == {n: n for n in range(4)}
    assert agent.state()["begun"] == ["2-0", "3-0"]


async def test_known_rows_keep_their_numbers_in_any_order(run_tasks, run_again, make_task, agent):
    await run_tasks([make_task(n) for n in range(3)])
    agent.begin_again()
    order = [7, 2, 0, 8, 1, 9]
    run = await run_again([make_task(n) for n in order])
    assert numbered(run) == {0: 0, 1: 1, 2: 2, 3: 7, 4: 8, 5: 9}
    assert sorted(agent.state()["begun"]) == ["3-0", "4-0", "5-0"]
    assert [row["number"] for row in run.tasks] == [0, 1, 2, 7, 8, 9]
    # The added rows are known in the next run.
    agent.begin_again()
    again = await run_again([make_task(n) for n in reversed(order)])
    assert agent.state()["begun"] == []
    assert again.notes == []


async def test_field_order_of_a_row_does_not_matter(run_tasks, run_again, make_task, agent, tmp_path):
    await run_tasks([make_task(0, a=1, b={"c": 2, "d": 3})])
    agent.begin_again()
    (tmp_path / "tasks.jsonl").write_text(
        '{"b": {"d":3, "c":2},"a":1,  "number": 0, "responses_create_params": {"input": "task 0"}}'
    )
    assert (await run_again()).summary.planned == 1
    assert agent.state()["begun"] == []


async def test_further_agent_is_added(run_tasks, run_again, make_task, agent):
    rows = [make_task(n, **for_agent("sound")) for n in range(2)]
    await run_tasks(rows)
    agent.begin_again()
    run = await run_again([each for row in rows for each in (row, {**row, **for_agent("mute")})])
    assert {row["_ng_task_index"]: row["agent_ref"]["name"] for row in run.results} == {
        0: "sound", 1: "sound", 2: "mute", 3: "mute",
    }  # fmt: skip
    assert sorted(agent.state()["begun"]) == ["2-0", "3-0"]


async def test_changed_default_agent_is_added(run_tasks, run_again, make_task):
    await run_tasks([make_task(0)])
    run = await run_again(agent_name="mute")
    assert [row["agent_ref"]["name"] for row in run.results] == ["sound", "mute"]
    assert run.notes == [
        "rollouts added to the earlier run: 1",
        "rollouts that are no longer in the input but remain part of the run: 1",
    ]


async def test_identical_lines_become_repeats_of_one_task(run_tasks, run_again, make_task):
    await run_tasks([make_task(0), make_task(1)])
    run = await run_again([make_task(1), make_task(0), make_task(1)], num_repeats=2)
    assert run.keys == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert numbered(run) == {0: 0, 1: 1}


async def test_rows_with_own_numbers_match_those_tasks(run_tasks, run_again, make_task, agent):
    await run_tasks([make_task(n, _ng_task_index=n * 10) for n in range(2)])
    agent.begin_again()
    run = await run_again([make_task(n, _ng_task_index=n * 10) for n in (2, 1, 0)] + [make_task(5)])
    assert numbered(run) == {0: 0, 10: 1, 20: 2, 1: 5}
    assert sorted(agent.state()["begun"]) == ["1-0", "20-0"]


@pytest.mark.parametrize("less", [{"limit": 2}, {"num_repeats": 2}])
async def test_smaller_input_keeps_the_earlier_plan(run_tasks, run_again, make_task, less):
    rows = [make_task(n, act="fail_twice") for n in range(4)]
    await run_tasks(rows, num_repeats=4)
    run = await run_again(**{"num_repeats": 4, **less})
    assert run.summary.planned == 16
    surplus = 8
    assert run.notes == [f"rollouts that are no longer in the input but remain part of the run: {surplus}"]


@pytest.mark.parametrize("metadata", [None, {}])
async def test_seeds_are_not_changes_of_empty_metadata(run_tasks, run_again, make_task, metadata):
    rows = [make_task(0, responses_create_params={"input": "a", "metadata": metadata})]
    await run_tasks(rows, num_repeats=2, num_repeats_add_seed=True)
    run = await run_again(num_repeats=3, num_repeats_add_seed=True)
    assert run.keys == [(0, 0), (0, 1), (0, 2)]


async def test_seeds_of_repeats_do_not_count_as_changes(run_tasks, run_again, make_task, agent):
    params = {"input": "x", "metadata": {"extra_body": '{"a": 1}'}}
    rows = [make_task(0), make_task(1) | {"responses_create_params": params}]
    await run_tasks(rows, num_repeats=2, num_repeats_add_seed=True)
    agent.begin_again()
    run = await run_again(num_repeats=3, num_repeats_add_seed=True)
    assert sorted(agent.state()["begun"]) == ["0-2", "1-2"]
    extra = [row["responses_create_params"]["metadata"]["extra_body"] for row in run.tasks[-2:]]
    assert extra == ['{"seed":2}', '{"a":1,"seed":2}']


# Rejected changes


async def refusal(run_again, rows=None, **settings):
    with pytest.raises(DataError) as error:
        await run_again(rows, **settings)
    return str(error.value)


async def test_changed_temperature_is_rejected_with_both_values(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(n) for n in range(5)], responses_create_params={"temperature": 0.7})
    before = {path: path.read_bytes() for path in first.files.results.parent.rglob("*") if path.is_file()}
    message = await refusal(run_again, responses_create_params={"temperature": 1.0})
    assert message.startswith(
        f"{first.files.results} was started with another responses_create_params.temperature (task 0: 0.7, now 1.0; "
        "4 more tasks). "
    )
    assert "--resume=force" in message
    assert "--overwrite" in message
    assert {path: path.read_bytes() for path in first.files.results.parent.rglob("*") if path.is_file()} == before


async def test_changed_row_is_rejected_with_task_and_fields(run_tasks, run_again, make_task):
    await run_tasks([make_task(n, answer={"is": n, "unit": "m"}) for n in range(4)])
    rows = [make_task(n, answer={"is": 99 if n == 2 else n, "unit": "m"}) for n in range(4)]
    rows.insert(1, make_task(17))
    message = await refusal(run_again, rows)
    assert " was started with another answer.is (task 2: 2, now 99). " in message


async def test_changed_row_with_own_number_is_rejected(run_tasks, run_again, make_task):
    await run_tasks([make_task(n, _ng_task_index=n) for n in range(3)])
    message = await refusal(run_again, [make_task(0, _ng_task_index=1, extra=True)])
    assert "another number (task 1: 1, now 0)" in message
    assert "another extra (task 1: absent, now true)" in message


async def test_different_rows_are_rejected(run_tasks, run_again, make_task):
    await run_tasks([make_task(n) for n in range(3)])
    message = await refusal(run_again, [make_task(n) for n in range(10, 13)])
    assert 'another responses_create_params.input (task 0: "task 0", now "task 10"; 2 more tasks)' in message


async def test_long_values_show_their_first_difference(run_tasks, run_again, make_task):
    def fields(number, end):
        return {
            "text": f"{'A' * 50}{number}{'B' * 50}",
            "end": f"{'C' * 50}{end}",
            "parts": ["D" * 30, {"at": number}],
        }

    await run_tasks([make_task(0, **fields(1, ""))])
    message = await refusal(run_again, [make_task(0, **fields(2, "!"))])
    text = f"{'A' * 10}1{'B' * 29}"
    assert f"another text (task 0: …{text}…, now …{text.replace('1', '2')}…)" in message
    assert f'another end (task 0: …{"C" * 10}", now …{"C" * 10}!")' in message
    assert 'another parts (task 0: …DD",{"at":1}], now …DD",{"at":2}])' in message


@pytest.mark.parametrize("change", ["another file", "another text"])
async def test_changed_prompt_is_rejected_with_its_path(run_tasks, run_again, make_task, tmp_path, change):
    old, new = tmp_path / "a.yaml", tmp_path / "b.yaml"
    old.write_text("user: 'What is {number}?'\n")
    rows = [{"number": n} for n in range(2)]
    await run_tasks(rows, prompt_config=str(old))
    text = "user: 'Tell me of {number}.'\n"
    (new if change == "another file" else old).write_text(text)
    message = await refusal(run_again, prompt_config=str(new if change == "another file" else old))
    assert message.partition(". Restore")[0].endswith(
        f"was started with another prompt_config ({old}, now {new})"
        if change == "another file"
        else f"was started with another prompt_config ({old} has changed)"
    )


def model(name, **settings):
    block = {"type": "responses_api_models", "implementation": "vllm_model", "model": name, **settings}
    return RunSubject(policy_model_name=name, models={"policy_model": block})


async def test_changed_model_is_rejected_with_its_name(run_tasks, run_again, make_task):
    await run_tasks([make_task(0)], subject=model("qwen"))
    message = await refusal(run_again, subject=model("llama"))
    assert "was started with another model: policy_model_name qwen → llama. " in message


async def test_changed_model_settings_are_rejected_except_concurrency(run_tasks, run_again, make_task):
    await run_tasks([make_task(0)], subject=model("qwen", thinking=False, num_concurrent_requests=5))
    assert (await run_again(subject=model("qwen", thinking=False, num_concurrent_requests=50))).summary.scored == 1
    message = await refusal(run_again, subject=model("qwen", thinking=True))
    assert "another model: policy_model.thinking false → true" in message


async def test_newly_added_seeds_are_rejected(run_tasks, run_again, make_task):
    await run_tasks([make_task(0)])
    assert "another num_repeats_add_seed" in await refusal(run_again, num_repeats_add_seed=True)


async def test_all_differences_are_reported_at_once(run_tasks, run_again, make_task):
    await run_tasks([make_task(0)], subject=model("qwen"))
    message = await refusal(run_again, [make_task(0, a=1)], subject=model("llama"), num_repeats_add_seed=True)
    assert "another model: policy_model_name qwen → llama, another num_repeats_add_seed, another a (task 0" in message


# Forced resumption


async def test_force_keeps_scores_and_runs_the_rest(run_tasks, run_again, make_task):
    rows = [make_task(0), make_task(1, act="crash")]
    await run_tasks(rows, num_repeats=2, subject=model("qwen"))
    changed = [{**row, "act": "ok", "earns": 0.5} for row in rows]
    run = await run_again(changed, num_repeats=3, resume_from_cache="force", subject=model("llama"))
    assert run.keys == [(n, repeat) for n in range(2) for repeat in range(3)]
    rewards = {(row["_ng_task_index"], row["_ng_rollout_index"]): row["reward"] for row in run.results}
    assert rewards == {(0, 0): 1.0, (0, 1): 1.0, (0, 2): 0.5, (1, 0): 0.5, (1, 1): 0.5, (1, 2): 0.5}
    assert sorted((row["_ng_task_index"], row["_ng_rollout_index"], row.get("earns")) for row in run.tasks) == [
        (0, 0, None), (0, 1, None), (0, 2, 0.5), (1, 0, 0.5), (1, 1, 0.5), (1, 2, 0.5),
    ]  # fmt: skip
    assert run.notes == [
        "rollouts added to the earlier run: 2",
        "unscored rollouts of the earlier run whose row has changed: 2",
    ]
    assert run.record["policy_model_name"] == "llama"


async def test_rows_are_compared_without_a_run_record(run_tasks, run_again, make_task):
    first = await run_tasks([make_task(0)], subject=model("qwen"))
    first.files.record.unlink()
    assert (await run_again(subject=model("llama"))).summary.kept == 1
    assert "another extra" in await refusal(run_again, [make_task(0, extra=1)])


# Random sequences of changes


@pytest.mark.parametrize("seed", range(6))
async def test_tasks_keep_their_numbers_over_many_amendments(run_tasks, make_task, agent, seed):
    chance = random.Random(seed)
    rows = [make_task(n, **for_agent(chance.choice(["sound", "mute"]))) for n in range(chance.randint(1, 6))]
    numbers, repeats, asked = {}, 1, 0
    for step in range(5):
        run = await run_tasks(rows, num_repeats=repeats, resume_from_cache=step > 0)
        content = {(row["number"], row["agent_ref"]["name"]): row["_ng_task_index"] for row in run.tasks}
        assert numbers.items() <= content.items()
        numbers = content
        assert len(set(numbers.values())) == len(numbers)
        per_task = Counter(row["_ng_task_index"] for row in run.tasks)
        assert run.keys == sorted((task, repeat) for task, count in per_task.items() for repeat in range(count))
        asked = max(asked, len(rows) * repeats)
        assert run.summary.planned == run.summary.scored >= asked
        assert len(agent.state()["begun"]) == run.summary.scored
        repeats += chance.randint(0, 1)
        for _ in range(chance.randint(0, 3)):
            new = make_task(chance.randint(0, 9), **for_agent(chance.choice(["sound", "mute"])))
            rows.insert(chance.randrange(len(rows) + 1), new)
        chance.shuffle(rows)
