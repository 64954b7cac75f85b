"""Rewards for a row's constraints."""

from pathlib import Path

import pytest

from nemo_gym import AggregateMetricsRequest, InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout
from resources_servers.instruction_following.app import InstructionFollowingServer
from resources_servers.instruction_following.oracle import solve

EXAMPLES = list(read_rows(Path(__file__).parent.parent / "data" / "example.jsonl"))
IDS = ["punctuation:no_comma", "keywords:existence"]
KWARGS = [{}, {"keywords": ["river"]}]
ACCURACIES = ("prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc")
BOTH, ONE, NONE = "A river.", "A lake.", "A lake, a sea."


def row(**fields):
    return {"id": 1, "instruction_id_list": IDS, "prompt": "Write.", "kwargs": KWARGS, **fields}


async def graded(row, *items, **settings):
    async with rollout(make_server(InstructionFollowingServer, **settings), **row) as attempt:
        return await attempt.verify(reply(*items))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda row: f"row {row['id']}")
async def test_example_rewards_its_oracle_but_not_silence(example):
    right = await graded(example, *solve(example))
    assert (right.reward, right.follow_all_instructions) == (1.0, True)
    empty = await graded(example, "")
    assert (empty.reward, empty.follow_all_instructions) == (0.0, False)
    assert empty.follow_instruction_list == [False] * len(right.follow_instruction_list)


async def test_grading_mode_sets_the_reward():
    mode_cases = [
        (None, BOTH, [True, True], 1.0),
        (None, ONE, [True, False], 0.0),
        ("binary", BOTH, [True, True], 1.0),
        ("binary", ONE, [True, False], 0.0),
        ("binary", NONE, [False, False], 0.0),
        ("fraction", BOTH, [True, True], 1.0),
        ("fraction", ONE, [True, False], 0.5),
        ("fraction", NONE, [False, False], 0.0),
    ]
    wrong = []
    for mode, text, each, reward in mode_cases:
        for is_nested in [False, True]:
            task = row(grading_mode=mode)
            result = await graded({"verifier_metadata": task} if is_nested else task, text)
            found = (result.reward, result.follow_instruction_list, result.follow_all_instructions)
            if found != (reward, each, all(each)):
                wrong.append((mode, text, each, reward, is_nested, found))
    assert wrong == []


@pytest.mark.parametrize(("settings", "reward"), [({}, 0.0), ({"loose": True}, 1.0)])
async def test_loose_config_allows_a_greeting(settings, reward):
    assert (await graded(row(), "Yes, here it is:\nA river.", **settings)).reward == reward
    assert (await graded(row(), NONE, **settings)).reward == 0.0


async def test_why_names_the_broken_constraints():
    assert (await graded(row(), BOTH)).why == "the answer follows 2 of 2 constraints"
    assert (await graded(row(), ONE)).why == "the answer follows 1 of 2 constraints, and breaks keywords:existence"
    many = row(instruction_id_list=IDS[:1] * 12, kwargs=[{}] * 12)
    assert (await graded(many, NONE)).why.endswith(f"0 of 12 constraints, and breaks {', '.join(IDS[:1] * 10)}, …")


async def test_strict_and_loose_results_are_both_reported():
    task = row(instruction_id_list=["startend:quotation", *IDS], kwargs=[{}, *KWARGS])
    found = await graded(task, 'Here, as you asked:\n"A lake."')
    assert (found.inst_level_strict_acc, found.inst_level_loose_acc) == ([False, False, False], [True, True, False])
    assert (found.prompt_level_strict_acc, found.prompt_level_loose_acc) == (False, False)
    found = await graded(row(), "Here, as you asked:\nA river.")
    assert (found.reward, found.prompt_level_strict_acc, found.prompt_level_loose_acc) == (0.0, False, True)


async def test_accuracies_are_aggregated_by_prompt_and_instruction():
    one = row(instruction_id_list=IDS[:1], kwargs=KWARGS[:1])
    answers = [
        (one, "A river."),
        (row(), "A lake, a sea."),
        (row(), "Yes, so:\nA lake."),
        (row(), "Yes, so:\nA river."),
    ]
    rollouts = [(await graded(task, text)).model_dump(mode="json") for task, text in answers]
    body = AggregateMetricsRequest(
        verify_responses=[
            {**each, "_ng_task_index": place, "_ng_rollout_index": 0} for place, each in enumerate(rollouts)
        ]
    )
    metrics = (await make_server(InstructionFollowingServer).aggregate_metrics(body)).key_metrics
    assert {name: metrics[f"mean/{name}"] for name in ACCURACIES} == {
        "prompt_level_strict_acc": pytest.approx(1 / 4),
        "prompt_level_loose_acc": pytest.approx(2 / 4),
        "inst_level_strict_acc": pytest.approx(2 / 7),
        "inst_level_loose_acc": pytest.approx(4 / 7),
    }


async def test_only_the_last_message_counts():
    assert (await graded(row(), NONE, BOTH)).reward == 1.0
    assert (await graded(row(), BOTH, NONE)).reward == 0.0
    assert (await graded(row())).reward == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instruction_id_list": ["punctuation:no_commas"], "kwargs": [{}]}, "Did you mean 'punctuation:no_comma'"),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": [{}]}, "keywords: Field required"),
        ({"instruction_id_list": ["keywords:existence"], "kwargs": None}, "keywords: Field required"),
        ({"kwargs": [{}]}, "instruction_id_list has 2 ids, kwargs has 1 items"),
        ({"instruction_id_list": []}, "instruction_id_list is empty or missing"),
        ({"instruction_id_list": None}, "instruction_id_list is empty or missing"),
    ],
)
async def test_invalid_row_raises_invalid_task(fields, message):
    with pytest.raises(InvalidTask, match=message) as raised:
        await graded(row(**fields), BOTH)
    assert str(raised.value).startswith("instruction_following: ")


async def test_constraints_without_arguments_need_none():
    cases = [[{}], [None], None, [{"keywords": None, "relation": None}]]
    wrong = []
    for kwargs in cases:
        task = row(instruction_id_list=["punctuation:no_comma"], kwargs=kwargs)
        if (found := (await graded(task, BOTH)).reward) != 1.0:
            wrong.append((kwargs, found))
    assert wrong == []


async def test_reply_contains_the_row():
    task = row(own=[1, None], grading_mode="fraction")
    answered = (await graded(task, BOTH)).model_dump(mode="json")
    assert {name: answered[name] for name in task} == task


def test_key_metrics_exclude_row_fields():
    metrics = {"mean/reward": 1.0, "mean/id": 3.0, "mean/follow_all_instructions": 1.0}
    kept = make_server(InstructionFollowingServer).get_key_metrics(metrics)
    assert kept == {"mean/reward": 1.0, "mean/follow_all_instructions": 1.0}


@pytest.mark.parametrize(("text", "reward"), [("river " * 20_000, 1.0), ("x" * 2_000_000, 0.0)])
async def test_long_answer_is_graded_in_a_worker(text, reward):
    assert (await graded(row(), text)).reward == reward
