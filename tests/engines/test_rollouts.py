"""Rollouts on a real vLLM: tokens over many turns, a full context, cancelled and killed."""

from __future__ import annotations

import signal

import pytest

from nemo_gym.training import sequences_of
from nemo_gym.training.trajectory import NonContiguousTokens, trajectory_of
from tests.engines.conftest import LIMIT_S, TOOLS
from tests.rows import line_count, rows_of
from tests.waiting import until

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(3 * LIMIT_S)]

FORCED = {"tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 200}


def prompts_of(row):
    """Yield the prompt of each turn in a row's training sequences."""
    for sequence in sequences_of(row):
        before = []
        for turn in sequence.turns:
            assert len(turn.sampled_ids) == len(turn.log_probs)
            assert all(log_prob <= 0 for log_prob in turn.log_probs)
            yield tuple(before + turn.context_ids)
            before += turn.context_ids + turn.sampled_ids


def check_tokens(row, received, turns):
    """Check that the sequences of a row consist of the prompts that the engine received, or are masked."""
    found = list(prompts_of(row))
    assert len(found) == turns
    assert received.issuperset(found)
    try:
        is_one = not trajectory_of(row).is_masked
    except NonContiguousTokens:
        is_one = False
    assert is_one == (len(sequences_of(row)) == 1 and not sequences_of(row)[0].is_masked)


def test_tokens_of_ten_turns_are_those_of_the_engine(engine):
    rows = engine.collect("turns", "rooms_agent", 4, {**FORCED, "tools": [TOOLS["turn"]]})
    received = engine.received()
    for row in rows:
        kinds = [item["type"] for item in row["response"]["output"]]
        assert kinds == ["function_call", "function_call_output"] * 10
        assert row["reward"] == 10
        check_tokens(row, received, 10)


@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_tokens_of_a_program_are_those_of_the_engine(engine, dialect):
    rows = engine.collect(f"{dialect}_program", f"{dialect}_program", 2, {})
    received = engine.received()
    for row in rows:
        assert row["program"]["model_calls"] == 4
        check_tokens(row, received, 4)


def test_full_context_ends_a_conversation(engine):
    rows = engine.collect("full", "rooms_agent", 4, {**FORCED, "tools": [TOOLS["read_map"]]})
    for row in rows:
        assert row["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        # The context holds one result, but not two or more.
        assert row["reward"] >= 1
        assert len(list(prompts_of(row))) == row["reward"] >= 1


def test_cancelled_rollouts_leave_the_engine(engine):
    completed = engine.metric("request_success_total", finished_reason="length")
    never_ends = {"max_output_tokens": 1900, "metadata": {"extra_body": '{"ignore_eos": true}'}}
    collection = engine.collecting("cancelled", "rooms_agent", 4, never_ends)
    until(lambda: engine.metric("num_requests_running") >= 4, within_s=LIMIT_S)
    collection.send(signal.SIGINT)
    collection.send(signal.SIGINT)
    collection.wait(LIMIT_S)
    until(lambda: engine.metric("num_requests_running") == 0, within_s=LIMIT_S)
    assert engine.metric("request_success_total", finished_reason="length") == completed


def test_killed_engine_loses_no_rollout(engine):
    before = engine.engine_process()
    collection = engine.collecting(
        "killed", "rooms_agent", 200, {"max_output_tokens": 32}, "+num_samples_in_parallel=16"
    )
    until(lambda: line_count(engine.folder / "killed.jsonl") >= 1, within_s=LIMIT_S)
    before.kill()
    finished = collection.wait(LIMIT_S)
    assert finished.code == 0, finished.err
    assert "200 planned = 200 scored + 0 failed" in finished.out
    assert len(rows_of(engine.folder / "killed.jsonl")) == 200
    assert engine.engine_process().pid != before.pid
