"""Training sequences of rollouts: contiguity, forks, masks, and the forms that frameworks take."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.training import InvalidTokens, NonContiguousTokens, sequences_of, trajectory_of
from tests.each_case import each_case

TOOL = {"type": "function_call_output", "call_id": "c", "output": "7"}


def said(prompt, sampled, log_probs=None, **fields):
    log_probs = [-float(token) for token in sampled] if log_probs is None else log_probs
    tokens = {"prompt_token_ids": prompt, "generation_token_ids": sampled, "generation_log_probs": log_probs}
    return {"type": "message", "role": "assistant", "content": []} | tokens | fields


def result_of(*output, reward=1.0, **fields):
    return {"response": {"output": list(output)}, "reward": reward} | fields


TWO_TURNS = result_of(said([1, 2], [3, 4]), TOOL, said([1, 2, 3, 4, 5, 6], [7]), reward=0.5)


def test_environment_text_between_turns_is_not_trained():
    trajectory = trajectory_of(TWO_TURNS)
    assert trajectory.prompt_ids == [1, 2]
    assert trajectory.completion_ids == [3, 4, 5, 6, 7]
    assert trajectory.mask == [1, 1, 0, 0, 1]
    assert trajectory.logprobs == [-3.0, -4.0, 0.0, 0.0, -7.0]
    assert (trajectory.reward, trajectory.is_masked, len(trajectory.turns)) == (0.5, False, 2)


def span(tokens, began_at, **fields):
    return {"tokens": tokens, "began_at": began_at, "ended_at": began_at + 5.0, **fields}


@each_case(
    ("first", "second", "moments", "versions"),
    [
        # Version 3 sampled the first turn, and version 4 the second one.
        ([span(2, 11.0)], [span(1, 21.0)], [(10.0, 3), (20.0, 4)], [3, 3, None, None, 4]),
        # The weights changed within a turn that was continued, and within one that was not.
        ([span(1, 11.0), span(1, 20.0)], [span(1, 19.0)], [(10.0, 3), (20.0, 4)], [3, 4, None, None, 3]),
        # The engine knows its weights better than the trainer.
        ([span(2, 11.0, weight_version="7")], [span(1, 21.0, weight_version="step-8")], [(10.0, 3)],
         [7, 7, None, None, "step-8"]),
        # The clock of the model server is behind.
        ([span(2, 8.0)], [span(1, 9.0)], [(10.0, 3)], [3, 3, None, None, 3]),
        # The version is unknown.
        ([span(2, 8.0)], None, [], [None] * 5),
        (None, None, [(10.0, 3)], [3, 3, None, None, 3]),
    ],
)  # fmt: skip
def test_version_is_known_for_each_token(first, second, moments, versions):
    turns = said([1, 2], [3, 4], sampling_spans=first), TOOL, said([1, 2, 3, 4, 5, 6], [7], sampling_spans=second)
    assert trajectory_of(result_of(*turns, policy_versions=moments)).versions == versions


def test_one_turn_may_have_several_items():
    reasoning, call = {"type": "reasoning", "summary": []}, said([1], [2], type="function_call")
    trajectory = trajectory_of(result_of(reasoning, call, TOOL, reasoning, said([1, 2, 3], [4])))
    assert (trajectory.completion_ids, trajectory.mask) == ([2, 3, 4], [1, 0, 1])


@each_case(
    ("second_prompt", "position", "message"),
    [
        ([1, 2, 3, 9, 5], 3, "At position 3 it has token 9, but the earlier turns have token 4."),
        ([1, 2, 3], 3, "At position 3 it ends, but the earlier turns have token 4."),
        ([], 0, "At position 0 it ends, but the earlier turns have token 1."),
    ],
)
def test_broken_prefix_is_named_with_its_position(second_prompt, position, message):
    with pytest.raises(NonContiguousTokens) as broken:
        trajectory_of(result_of(said([1, 2], [3, 4]), TOOL, said(second_prompt, [7])))
    assert (broken.value.turn, broken.value.position) == (2, position)
    assert str(broken.value).startswith(f"turn 2: its prompt does not continue the turns before it. {message} Use ")


CUT_OFF = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}
INCOMPLETE = {"incomplete_details": {"reason": "max_output_tokens"}}


def full_context(*output):
    return {"response": {"output": [*output, CUT_OFF], **INCOMPLETE}, "reward": 0.0}


def test_full_context_ends_a_sequence():
    trajectory = trajectory_of(full_context(said([1, 2], [3, 4]), TOOL))
    assert (trajectory.completion_ids, trajectory.reward, trajectory.is_masked) == ([3, 4], 0.0, False)


def test_prompt_that_fills_the_context_is_masked():
    trajectory = trajectory_of(full_context())
    assert (trajectory.turns, trajectory.reward) == ((), 0.0)
    assert trajectory.mask_reason == "the prompt left no room in the model's context"


@each_case(
    "result",
    [
        result_of(said([1, 2], [3, 4]), TOOL, CUT_OFF),
        {"response": {"output": [CUT_OFF | {"content": [{"type": "output_text", "text": "But"}]}], **INCOMPLETE}},
        {"response": {"output": [CUT_OFF | {"type": "reasoning"}], **INCOMPLETE}},
        {"response": {"output": [], **INCOMPLETE}},
    ],
)
def test_only_a_full_context_excuses_missing_tokens(result):
    with pytest.raises(InvalidTokens, match="has no token ids"):
        trajectory_of({"reward": 1.0} | result)


def test_shortened_history_begins_another_sequence():
    shortened, last = said([1, 8], [9]), said([1, 8, 9, 5], [6])
    first, second = sequences_of(result_of(said([1, 2], [3, 4]), TOOL, shortened, TOOL, last, reward=0.5))
    assert (first.prompt_ids, first.completion_ids) == ([1, 2], [3, 4])
    assert (second.prompt_ids, second.completion_ids, second.mask) == ([1, 8], [9, 5, 6], [1, 0, 1])
    assert first.reward == second.reward == 0.5


def test_turns_of_two_agents_may_alternate():
    main, other, again = said([1], [2]), said([5], [6]), said([1, 2, 3], [4])
    sequences = sequences_of(result_of(main, TOOL, other, TOOL, again, TOOL, said([5, 6, 7], [8])))
    assert [each.completion_ids for each in sequences] == [[2, 3, 4], [6, 7, 8]]


def test_repeated_call_is_a_sequence_of_its_own():
    sequences = sequences_of(result_of(said([1], [2]), said([1], [3]), TOOL, said([1, 3, 4], [5])))
    assert [(each.prompt_ids, each.completion_ids) for each in sequences] == [([1], [2]), ([1], [3, 4, 5])]


@each_case(
    ("result", "message"),
    [
        (result_of(), "turn 1 has no token ids. Use a model server that returns them, "),
        ({"reward": 1.0}, "turn 1 has no token ids."),
        (result_of(said([1], [2]), TOOL, {"type": "message", "content": []}), "turn 2 has no token ids."),
        (result_of(said([1], [2], [])), "turn 1: 1 sampled tokens, but 0 log-probabilities."),
        (result_of(said([1], [2], [math.nan])), "turn 1: generation_log_probs contains a number that is not finite."),
        (result_of(said([1], [2], [-math.inf])), "turn 1: generation_log_probs contains a number that is not finite."),
        (result_of(said([1], [2], [None])), "turn 1: generation_log_probs is not a list of numbers."),
        (result_of(said(["1"], [2])), "turn 1: prompt_token_ids is not a list of integers."),
        (result_of(said([1], [True])), "turn 1: generation_token_ids is not a list of integers."),
        (result_of(said(None, [2])), "turn 1: prompt_token_ids is not a list of integers."),
    ],
)
def test_missing_or_contradictory_tokens_are_rejected(result, message):
    with pytest.raises(InvalidTokens) as rejected:
        trajectory_of(result)
    assert str(rejected.value).startswith(message)


@each_case(
    ("fields", "reason"),
    [
        ({"mask_sample": True}, "mask_sample"),
        ({"mask_sample": True, "failure_reason": "token 3 is lost"}, "token 3 is lost"),
        ({"instance_config": {"mask_sample": True}}, "mask_sample"),
        ({"mask_sample": 1}, "mask_sample"),
        ({"reward": None}, "the rollout has no reward"),
        ({"mask_sample": False}, None),
    ],
)
def test_masked_rollout_keeps_its_tokens_and_reason(fields, reason):
    trajectory = trajectory_of({**TWO_TURNS, **fields})
    assert (trajectory.mask_reason, trajectory.is_masked) == (reason, reason is not None)
    assert trajectory.mask == [1, 1, 0, 0, 1]
    assert trajectory.as_verl()["response_mask"] == ([0] * 5 if reason else [1, 1, 0, 0, 1])
    assert trajectory.as_trl()["env_reward"] == (None if reason else 0.5)
    assert trajectory.as_nemo_rl()["instance_config"] == {"mask_sample": reason is not None}
    sample, response = trajectory.as_slime(), trajectory.as_openrlhf()
    assert (sample["loss_mask"], sample["remove_sample"], sample["status"], sample["reward"]) == (
        ([0] * 5, True, "failed", None) if reason else ([1, 1, 0, 0, 1], False, "completed", 0.5)
    )
    assert (response["action_ranges"], response["reward"]) == (([], None) if reason else ([(2, 4), (6, 7)], 0.5))
    assert trajectory.as_skyrl()["loss_masks"] == sample["loss_mask"]
    assert [turn["metrics"] for turn in trajectory.as_tinker()] == [{"parse_error_masked": 1.0} if reason else {}] * 2
    assert len(trajectory.as_art()) == (0 if reason else 2)


def test_failed_rollout_has_no_reward():
    failed = {"_ng_failure_class": "agent_failed", "_ng_failure_message": "it broke", "reward": 0.0}
    trajectory = trajectory_of(failed)
    assert (trajectory.reward, trajectory.mask_reason, trajectory.turns) == (None, "agent_failed: it broke", ())
    assert trajectory.as_trl() == {
        "prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "env_reward": None
    }  # fmt: skip
    assert trajectory.as_verl()["reward_score"] is None
    assert trajectory.as_nemo_rl()["message_log"] == []
    assert (trajectory.as_tinker(), trajectory.as_art()) == ([], [])
    assert (trajectory.as_slime()["tokens"], trajectory.as_openrlhf()["observation_tokens"]) == ([], [])


def test_reward_components_are_kept():
    assert trajectory_of({**TWO_TURNS, "reward_components": {"format": 1.0}}).reward_components == {"format": 1.0}


def test_nemo_rl_receives_a_message_per_part():
    routed = result_of(said([1, 2], [3, 4], routed_experts="AAE="), TOOL, said([1, 2, 3, 4, 5, 6], [7]))
    log = trajectory_of(routed).as_nemo_rl()
    assert log["message_log"] == [
        {"role": "user", "content": "", "token_ids": [1, 2]},
        {"role": "assistant", "content": "", "token_ids": [3, 4], "generation_logprobs": [-3.0, -4.0],
         "routed_experts": "AAE="},
        {"role": "user", "content": "", "token_ids": [5, 6]},
        {"role": "assistant", "content": "", "token_ids": [7], "generation_logprobs": [-7.0]},
    ]  # fmt: skip
    assert log["input_message_log"] == log["message_log"][:1]


def test_trl_and_verl_receive_prompt_and_completion():
    trajectory = trajectory_of(TWO_TURNS)
    assert trajectory.as_trl() == {
        "prompt_ids": [1, 2], "completion_ids": [3, 4, 5, 6, 7], "logprobs": [-3.0, -4.0, 0.0, 0.0, -7.0],
        "env_mask": [1, 1, 0, 0, 1], "env_reward": 0.5,
    }  # fmt: skip
    assert trajectory.as_verl() == {
        "prompt_ids": [1, 2], "response_ids": [3, 4, 5, 6, 7], "response_mask": [1, 1, 0, 0, 1],
        "response_logprobs": [-3.0, -4.0, 0.0, 0.0, -7.0], "reward_score": 0.5, "num_turns": 2,
    }  # fmt: skip


def test_slime_openrlhf_and_skyrl_receive_one_sequence():
    first = said([1, 2], [3, 4], sampling_spans=[span(1, 0.0, weight_version="3"), span(1, 1.0, weight_version="4")])
    second = said([1, 2, 3, 4, 5, 6], [7], sampling_spans=[span(1, 2.0, weight_version="4")])
    trajectory = trajectory_of(result_of(first, TOOL, second, reward=0.5))
    log_probs = [-3.0, -4.0, 0.0, 0.0, -7.0]
    assert trajectory.as_slime() == {
        "tokens": [1, 2, 3, 4, 5, 6, 7], "response_length": 5, "loss_mask": [1, 1, 0, 0, 1],
        "rollout_log_probs": log_probs, "weight_versions": ["3", "4", "4"], "reward": 0.5, "remove_sample": False,
        "status": "completed",
    }  # fmt: skip
    assert trajectory.as_openrlhf() == {
        "observation_tokens": [1, 2, 3, 4, 5, 6, 7], "action_ranges": [(2, 4), (6, 7)],
        "rollout_log_probs": [0.0, 0.0, *log_probs], "reward": 0.5, "scores": 0.5, "truncated": False,
        "extra_logs": {},
    }  # fmt: skip
    assert trajectory.as_skyrl() == {
        "prompt_token_ids": [1, 2], "response_ids": [3, 4, 5, 6, 7], "loss_masks": [1, 1, 0, 0, 1],
        "rollout_logprobs": log_probs, "rewards": 0.5,
    }  # fmt: skip


def test_tinker_and_art_receive_each_turn():
    trajectory = trajectory_of(TWO_TURNS)
    assert trajectory.as_tinker() == [
        {"ob": [1, 2], "ac": {"tokens": [3, 4], "maybe_logprobs": [-3.0, -4.0]}, "reward": 0.0, "episode_done": False,
         "metrics": {}},
        {"ob": [1, 2, 3, 4, 5, 6], "ac": {"tokens": [7], "maybe_logprobs": [-7.0]}, "reward": 0.0,
         "episode_done": True, "metrics": {}},
    ]  # fmt: skip
    assert trajectory.as_art()[1] == {
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""},
        "prompt_token_ids": [1, 2, 3, 4, 5, 6], "token_ids": [7],
        "logprobs": {"content": [{"token": "token_id:7", "logprob": -7.0, "top_logprobs": []}]},
    }  # fmt: skip


IDS = st.lists(st.integers(0, 3), max_size=4)
"""Few different tokens, so that prompts agree by chance."""


@given(IDS, st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_contiguous_turns_are_one_sequence(prompt, rest):
    items, ids, bits = [], list(prompt), []
    for context, sampled in rest:
        ids += context
        items += [said(list(ids), sampled), TOOL]
        ids += sampled
        bits += [0] * len(context) + [1] * len(sampled)
    trajectory = trajectory_of(result_of(*items))
    assert trajectory.prompt_ids + trajectory.completion_ids == ids
    assert trajectory.mask == bits[len(rest[0][0]) :]


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=8))
def test_each_sampled_token_is_trained_once(calls):
    # Each log-probability identifies one sampled token of one call.
    number = iter(range(1, 1000))
    items = [said(prompt, sampled, [-float(next(number)) for _ in sampled]) for prompt, sampled in calls]
    sequences = sequences_of(result_of(*items))
    trained = [
        (token, log_prob)
        for each in sequences
        for token, log_prob, bit in zip(each.completion_ids, each.logprobs, each.mask, strict=True)
        if bit
    ]
    expected = [pair for item in items
                for pair in zip(item["generation_token_ids"], item["generation_log_probs"], strict=True)]  # fmt: skip
    assert sorted(trained) == sorted(expected)
    prompts = {tuple(prompt + sampled) for prompt, sampled in calls}
    for each in sequences:
        # What the engine saw last is the whole sequence.
        assert tuple(each.prompt_ids + each.completion_ids) in prompts


@given(st.lists(st.tuples(IDS, IDS), min_size=2, max_size=4))
def test_several_sequences_are_never_returned_as_one(calls):
    result = result_of(*(said(*call) for call in calls))
    is_contiguous = all(later[0][: len(before + sampled)] == before + sampled
                        for (before, sampled), later in pairwise(calls))  # fmt: skip
    if len(sequences_of(result)) == 1:
        trajectory_of(result)
    else:
        assert not is_contiguous
        with pytest.raises(NonContiguousTokens):
            trajectory_of(result)
