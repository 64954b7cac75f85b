"""Tests of token sequences, compared with those of the training data."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.training.trajectory import trajectory_of
from nemo_gym.viewer import tokens
from nemo_gym.viewer.tokens import tokens_of
from tests.viewer.rollout_rows import row, said, scored


def turn(prompt: list[int], sampled: list[int]) -> dict[str, Any]:
    log_probs = [-0.1 * token for token in sampled]
    fields = {"prompt_token_ids": prompt, "generation_token_ids": sampled, "generation_log_probs": log_probs}
    return said("x", **fields)


def rollout(*turns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    user = {"type": "function_call_output", "call_id": "c", "output": "and?"}
    output = [item for each in turns for item in (user, each)][1:]
    return scored(row(), *output, **fields)


def test_sequence_is_the_one_that_is_trained():
    record = rollout(turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6]))
    found = tokens_of(record)
    [sequence] = found["sequences"]
    trained = trajectory_of(record)
    assert sequence["ids"] == [*trained.prompt_ids, *trained.completion_ids] == [1, 2, 3, 4, 5, 6]
    assert sequence["mask"] == [0, 0, *trained.mask] == [0, 0, 1, 1, 0, 1]
    assert sequence["logprobs"] == [None, None, -0.3, -0.4, None, -0.6]
    assert (sequence["prompt_length"], found["problem"]) == (2, None)
    assert sequence["turns"] == [{"start": 2, "end": 4, "text": "x"}, {"start": 5, "end": 6, "text": "x"}]
    assert sequence["texts"] is None


def test_forks_are_shown_with_their_place():
    found = tokens_of(rollout(turn([1, 2], [3]), turn([1, 9], [4])))
    assert [each["ids"] for each in found["sequences"]] == [[1, 2, 3], [1, 9, 4]]
    assert "At position 1 it has token 9" in found["problem"]
    assert "sequences_of" not in found["problem"]


def test_nothing_of_a_masked_rollout_is_trained():
    found = tokens_of(rollout(turn([1], [2]), mask_sample=True, failure_reason="the sandbox broke"))
    assert (found["is_masked"], found["mask_reason"]) == (True, "the sandbox broke")
    assert found["sequences"][0]["mask"] == [0, 0]


def test_missing_tokens_are_explained():
    found = tokens_of(scored(row(), said("4")))
    assert found["sequences"] == []
    assert found["problem"].startswith("turn 1 has no token ids.")


def test_long_sequences_are_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokens, "MOST_TOKENS", 5)
    found = tokens_of(rollout(turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6])))
    assert found["sequences"][0]["ids"] == found["sequences"][0]["ids"][:5] == [1, 2, 3, 4, 5]
    assert found["sequences"][0]["turns"] == [{"start": 2, "end": 4, "text": ""}]
    assert found["problem"].startswith("Only the first 5 of 6 tokens")


@pytest.mark.parametrize(
    "captured",
    [
        {},
        {"branches": 5, "is_rebuilt": False, "mask_reasons": []},
        {"branches": [[{"context_ids": 1}]], "is_rebuilt": False, "mask_reasons": []},
        {
            "branches": [[{"context_ids": [1], "sampled_ids": [2], "log_probs": ["x"]}]],
            "is_rebuilt": False,
            "mask_reasons": [],
        },
    ],
)
def test_unknown_token_fields_are_explained(captured: object):
    found = tokens_of(scored(row(), said("4"), _ng_token_capture=captured))
    assert found["sequences"] == []
    assert "are not those of nemo_gym" in found["problem"]
