"""Properties of token capture over random conversations with forks, retries, sub-agents and lost writes."""

from collections import Counter
from dataclasses import replace
from uuid import uuid4

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.tokens.collecting import finalize_rollout_token_capture
from nemo_gym.capture.tokens.entry import FrozenTokens, TokenEntry
from nemo_gym.capture.tokens.file_store import FileTokenStore
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.capture.tokens.sequences import trajectories_for_rollout
from nemo_gym.training.trajectory import sequences_of
from tests.capture.tokens.conversations import STEPS, Call, World, prompt_of


def entry_of(call, rollout_id, at, took=0.5):
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"answer {at}"}]}
    return TokenEntry(
        rollout_id=rollout_id,
        model_call_id=f"call-{at}",
        prompt_token_ids=Numbers.of(call.prompt),
        generation_token_ids=Numbers.of(call.sampled),
        generation_log_probs=Numbers.of(call.log_probs),
        output_items=[item],
        began_at=float(at) - took,
        created_at=float(at),
    )


def played(steps, root, rollout_id):
    """Record the calls of a conversation through two server processes, some of which fail to."""
    world = World()
    stores = [FileTokenStore(root), FileTokenStore(root)]
    for at, step in enumerate(steps):
        call = Call(prompt_of(step, world.calls), step.sampled, [step.log_prob + 0.0 for _ in step.sampled])
        if step.kind == "hole":
            stores[at % 2].mark_incomplete(rollout_id, "the disk is full")
            world.has_hole = True
        elif step.kind == "lose":
            # The process is killed while it writes, before the answer reaches the agent.
            path = root / f"{rollout_id}.tokens.jsonl"
            stores[at % 2].put(entry_of(call, rollout_id, at))
            path.write_bytes(path.read_bytes()[:-3])
            stores[at % 2] = FileTokenStore(root)
            world.has_hole = True
            continue
        else:
            stores[at % 2].put(entry_of(call, rollout_id, at))
        world.calls.append(call)
    return world, FileTokenStore(root)


def checked_result(steps, tmp_path_factory):
    rollout_id = uuid4().hex
    world, store = played(steps, tmp_path_factory, rollout_id)
    result = {"reward": 1.0, "response": {"output": []}}
    finalize_rollout_token_capture(result, rollout_id, store)
    return world, orjson.loads(orjson.dumps(result))


def recorded_calls(world, steps):
    return Counter((tuple(each.prompt), tuple(each.sampled), tuple(each.log_probs)) for each in world.calls)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_every_trained_token_was_sampled_once(steps, tmp_path_factory):
    world, result = checked_result(steps, tmp_path_factory.getbasetemp())
    left = recorded_calls(world, steps)
    for sequence in sequences_of(result) if "branches" in result["_ng_token_capture"] and has_any(result) else []:
        before = []
        for turn in sequence.turns:
            prompt = before + turn.context_ids
            key = (tuple(prompt), tuple(turn.sampled_ids), tuple(turn.log_probs))
            assert left[key] > 0
            left[key] -= 1
            before = prompt + turn.sampled_ids
        assert sequence.prompt_ids + sequence.completion_ids == before
        assert len(sequence.completion_ids) == len(sequence.mask) == len(sequence.logprobs)


def has_any(result):
    return result["_ng_token_capture"]["sequences"] > 0


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_a_hole_masks_the_rollout(steps, tmp_path_factory):
    world, result = checked_result(steps, tmp_path_factory.getbasetemp())
    if world.has_hole:
        assert result["mask_sample"] is True
        assert result["instance_config"]["mask_sample"] is True
        assert result["_ng_token_capture"]["mask_reasons"]


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_unused_retries_are_not_trained(steps, tmp_path_factory):
    rollout_id = uuid4().hex
    _, store = played(steps, tmp_path_factory.getbasetemp(), rollout_id)
    frozen = store.freeze(rollout_id)
    found = trajectories_for_rollout(frozen)
    kept = [call for sequence in found.sequences for call in sequence]
    prompts = [call.prompt_token_ids.text for call in frozen.entries]
    for call in kept:
        siblings = [each for each in frozen.entries if each.prompt_token_ids == call.prompt_token_ids]
        answers = {each.generation_token_ids.text for each in siblings}
        if len(answers) > 1 and not found.mask_reasons:
            whole = call.prompt_token_ids.text + call.generation_token_ids.text
            assert any(prompt.startswith(whole) for prompt in prompts)
    assert len(kept) + found.retries == len(frozen.entries)


@given(begins=st.lists(st.integers(0, 9), min_size=2, max_size=6, unique=True), took=st.integers(1, 4))
def test_answers_to_one_prompt_are_trained_if_they_were_sampled_at_the_same_time(begins, took):
    calls = [Call([1, 2], [10 + at], [-1.0]) for at in range(len(begins))]
    ends = sorted(began + took for began in begins)
    entries = [entry_of(call, "r", end, took) for call, end in zip(calls, ends, strict=True)]
    entries = [replace(entry, model_call_id=str(at)) for at, entry in enumerate(entries)]
    found = trajectories_for_rollout(FrozenTokens(tuple(entries)))
    parallel = [
        entry for entry in entries
        if any(abs(entry.created_at - other.created_at) < took for other in entries if other is not entry)
    ]  # fmt: skip
    kept = [call for sequence in found.sequences for call in sequence]
    assert kept == (parallel or entries)
    assert bool(found.mask_reasons) == (not parallel)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_recorded_prompts_are_read_back_unchanged(steps, tmp_path_factory):
    rollout_id = uuid4().hex
    world, store = played(steps, tmp_path_factory.getbasetemp(), rollout_id)
    lost = sum(step.kind == "hole" for step in steps)
    entries = store.freeze(rollout_id).entries
    stored = Counter((tuple(each.prompt_token_ids), tuple(each.generation_token_ids)) for each in entries)
    assert stored.total() <= len(world.calls) - lost
    assert not stored - Counter((tuple(each.prompt), tuple(each.sampled)) for each in world.calls)
    if not any(step.kind == "lose" for step in steps):
        assert stored.total() == len(world.calls) - lost
