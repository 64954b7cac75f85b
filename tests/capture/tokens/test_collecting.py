"""Tests of how recorded tokens reach a result, and of runs in which too many rollouts lack them."""

from dataclasses import replace

import orjson
import pytest
from omegaconf import OmegaConf

from nemo_gym import ServerClient
from nemo_gym.capture.tokens.file_store import Prefixes
from nemo_gym.capture.tokens.numbers import Numbers
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import DataError
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.rollouts.recorded_tokens import RecordedTokens
from nemo_gym.schemas.row import Row
from nemo_gym.token_id_capture import FileTokenStore, RolloutFrozen, TokenEntry, finalize_rollout_token_capture
from nemo_gym.training import sequences_of, trajectory_of
from tests.each_case import each_case

FIRST, SECOND = [1, 2], [1, 2, 3, 4, 9]
"""The prompts of two turns; 3 and 4 were sampled in the first one."""


def message(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "a door"}
USER = {"type": "message", "role": "user", "content": "And now?"}


def entry(number, prompt, sampled, *items, **fields):
    return TokenEntry(
        rollout_id="0-0",
        model_call_id=f"call-{number}",
        prompt_token_ids=Numbers.of(prompt),
        generation_token_ids=Numbers.of(sampled),
        generation_log_probs=Numbers.of([-0.5] * len(sampled)),
        output_items=list(items),
        token_item_index=len(items) - 1,
        **fields,
    )


@pytest.fixture
def store(tmp_path):
    store = FileTokenStore(tmp_path)
    store.put(entry(0, FIRST, [3, 4], message("Let me look."), CALL))
    store.put(entry(1, SECOND, [5], message("A door."), routed_experts="AAE="))
    return store


def finalized(store, *output, **settings):
    result = {"reward": 1.0, "response": {"output": list(output)}}
    finalize_rollout_token_capture(result, "0-0", store, **settings)
    return result


def test_agents_own_items_get_the_tokens(store):
    result = finalized(store, message("Let me look."), CALL, RESULT, USER, message("A door."))
    output = result["response"]["output"]
    assert [item["type"] for item in output] == [
        "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert (output[1]["prompt_token_ids"], output[1]["generation_token_ids"]) == (FIRST, [3, 4])
    assert (output[4]["prompt_token_ids"], output[4]["routed_experts"]) == (SECOND, "AAE=")
    assert "agent_output" not in result["_ng_token_capture"]
    sequence = trajectory_of(result)
    assert (sequence.prompt_ids, sequence.completion_ids) == (FIRST, [3, 4, 9, 5])
    assert sequence.mask == [1, 1, 0, 1]


def test_equal_answers_get_their_own_tokens(tmp_path):
    store = FileTokenStore(tmp_path)
    store.put(entry(0, FIRST, [3, 4], message("Yes.")))
    store.put(entry(1, SECOND, [5], message("Yes.")))
    output = finalized(store, message("Yes."), USER, message("Yes."))["response"]["output"]
    assert [item.get("generation_token_ids") for item in output] == [[3, 4], None, [5]]


@pytest.mark.parametrize("answer", ["A door.", "A gate."])
def test_side_conversation_does_not_replace_the_response(store, answer):
    store.put(entry(2, [8, 8], [6], message("A title.")))
    called = {**CALL, "arguments": "{ }"}
    result = finalized(store, message("Let me look."), called, RESULT, USER, message(answer))
    said = [item["content"][0]["text"] for item in result["response"]["output"] if item.get("role") == "assistant"]
    assert said == ["Let me look.", "A door."]
    assert sorted(len(each.turns) for each in sequences_of(result)) == [1, 2]


def test_edited_text_does_not_change_tokens(store):
    edited = finalized(store, message("Redacted."), CALL, RESULT, message("Also redacted."))
    output = edited["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "function_call_output", "message"]
    assert output[3]["content"] == message("A door.")["content"]
    assert edited["_ng_token_capture"]["agent_output"][0] == message("Redacted.")
    assert trajectory_of(edited).completion_ids == [3, 4, 9, 5]


def test_tokens_of_the_agent_are_replaced(store):
    forged = {"prompt_token_ids": [7], "generation_token_ids": [7], "generation_log_probs": [-7.0]}
    result = finalized(store, message("Let me look."), {**CALL, **forged}, RESULT, {**message("A door."), **forged})
    assert trajectory_of(result).completion_ids == [3, 4, 9, 5]


def test_response_stays_without_rebuilding(store):
    result = finalized(store, message("Short."), rebuild_response=False)
    assert result["response"]["output"] == [message("Short.")]
    (sequence,) = sequences_of(result)
    assert sequence.completion_ids == [3, 4, 9, 5]
    assert [turn.routed_experts for turn in sequence.turns] == [None, "AAE="]


def test_agent_may_pass_on_its_tokens_itself(tmp_path):
    with_tokens = {**message("yes"), "prompt_token_ids": [1], "generation_token_ids": [2]}
    result = finalized(FileTokenStore(tmp_path), {**with_tokens, "generation_log_probs": [-0.5]})
    assert "_ng_token_capture" not in result
    assert trajectory_of(result).completion_ids == [2]


def test_rollout_without_recorded_calls_is_masked(tmp_path):
    result = finalized(FileTokenStore(tmp_path), message("yes"))
    (sequence,) = sequences_of(result)
    assert sequence.mask_reason == "no sampled tokens were recorded"


def test_differing_last_answers_mask_the_rollout(store):
    store.put(entry(2, SECOND, [6], message("A window.")))
    (first, *_) = sequences_of(finalized(store, message("A window.")))
    assert first.mask_reason == "a prompt has 2 answers, and no later call shows which of them was used"


def test_record_of_an_earlier_version_is_read(tmp_path):
    call = {"schema_version": 1, "model": None, "routed_experts": None, "output_items": [CALL], "token_item_index": 0}
    lines = [
        {"log": "0" * 32},
        {**call, "model_call_id": "a", "continues": None, "prompt_token_ids": FIRST, "generation_token_ids": [3, 4],
         "generation_log_probs": [-0.5, -0.5], "created_at": 1.5},
        {**call, "model_call_id": "b", "continues": {"model_call_id": "a", "tokens": 4}, "prompt_token_ids": [9],
         "generation_token_ids": [5], "generation_log_probs": [-0.5], "created_at": 2.5},
        {"gap": "the disk is full"},
    ]  # fmt: skip
    (tmp_path / "0-0.tokens.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (first, second), gaps = FileTokenStore(tmp_path).freeze("0-0")
    assert (first.prompt_token_ids, second.prompt_token_ids) == (FIRST, SECOND)
    assert (second.rollout_id, second.model_call_id, second.created_at) == ("0-0", "b", 2.5)
    assert gaps == ("the disk is full",)


@each_case(
    ("value", "are_ids"),
    [([1, -1], True), ([1, 2.5], True), ([0.5, float("nan")], False), (["1"], False), ("1,2", True), (None, True)],
)
def test_other_values_are_no_numbers(value, are_ids):
    with pytest.raises(ValueError, match="not an array"):
        Numbers.of(value).checked(are_ids=are_ids)


@each_case("text", [b"[1,,2]", b"[01]", b"[1-2]", b"[1e999]"])
def test_malformed_text_is_no_numbers(text):
    with pytest.raises(ValueError, match=r"not an array|line 1 column"):
        Numbers.of(orjson.Fragment(text)).checked(are_ids=False)


def test_stored_size_grows_with_the_tokens(tmp_path):
    sizes = []
    for turns in (10, 20, 40):
        store, ids = FileTokenStore(tmp_path / str(turns)), [1]
        for turn in range(turns):
            sampled = [1000 + turn] * 100
            store.put(entry(turn, ids, sampled, message("x")))
            ids = ids + sampled + [7]
        (file,) = (tmp_path / str(turns)).iterdir()
        sizes.append(file.stat().st_size)
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])


def test_forgotten_prefixes_cost_space_but_no_tokens(tmp_path):
    prefixes, prompt, sampled = Prefixes(most=2), Numbers(b"1,2,"), Numbers(b"3,")

    def continued(log, call, prompt):
        placed = prefixes.place(log, call, prompt, sampled)
        prefixes.remember(log, placed.added)
        return placed.longest.model_call_id if placed.longest else None

    assert continued(b"one", "a", prompt) is None
    assert continued(b"one", "b", Numbers.joined([prompt, sampled])) == "a"
    assert continued(b"two", "c", prompt) is None
    assert continued(b"one", "d", Numbers.joined([prompt, sampled])) is None


class Broken(FileTokenStore):
    def freeze(self, rollout_id):
        raise RuntimeError("no such shard")


class Rollouts:
    """A run with token capture, of which each rollout has one recorded call or none."""

    def __init__(self, folder, kind=FileTokenStore, **settings):
        block = {"enabled": True, "all_agents": True, "dir": str(folder), **settings}
        head = BaseServerConfig(host="127.0.0.1", port=0)
        client = ServerClient(
            head_server_config=head, global_config_dict=OmegaConf.create({"token_id_capture": block})
        )
        self.store = FileTokenStore(folder)
        self.tokens = RecordedTokens(client, kind(folder))
        self.ids = []

    async def end(self, *, has_call=True, outcome=Outcome.SCORED):
        async def run(row):
            self.ids.append(row.rollout_id)
            if has_call:
                self.store.put(replace(entry(0, FIRST, [3], message("x")), rollout_id=row.rollout_id))
            return Record(outcome, Row({**row.fields, "response": {"output": []}, "reward": 1.0}))

        row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "agent"}}
        return (await self.tokens.run(Row(row), run)).row.fields


async def test_run_ends_if_too_many_rollouts_lack_tokens(tmp_path):
    rollouts = Rollouts(tmp_path, max_mask_fraction=0.5, mask_fraction_min_samples=4)
    for has_call in (True, False, True, False, False):
        await rollouts.end(has_call=has_call)
    message = r"max_mask_fraction: 3 of 5 rollouts \(60%\) lack tokens .* no sampled tokens were recorded"
    with pytest.raises(DataError, match=message):
        await rollouts.end()


async def test_failed_rollouts_do_not_count_as_masked(tmp_path):
    rollouts = Rollouts(tmp_path, max_mask_fraction=0.0, mask_fraction_min_samples=1)
    await rollouts.end(has_call=False, outcome=Outcome.FAILED)
    rollouts.tokens.check()


@each_case("outcome", [Outcome.FAILED, Outcome.SCORED])
async def test_late_calls_are_refused_until_the_run_ends(outcome, tmp_path):
    rollouts = Rollouts(tmp_path / outcome)
    await rollouts.end(outcome=outcome)
    (rollout_id,) = rollouts.ids
    with pytest.raises(RolloutFrozen):
        rollouts.store.mark_incomplete(rollout_id, "late")
    await rollouts.tokens.aclose()
    assert list(rollouts.store.root.iterdir()) == []


async def test_error_of_a_source_masks_one_rollout(tmp_path):
    (sequence,) = sequences_of(await Rollouts(tmp_path, Broken).end())
    assert "no such shard" in sequence.mask_reason


def test_items_of_the_agent_itself_need_no_tokens(store):
    notes = message("Stopped after two turns.")
    result = finalized(store, message("Let me look."), CALL, RESULT, message("A door."), USER, notes)
    assert trajectory_of(result).completion_ids == [3, 4, 9, 5]
    assert result["response"]["output"][-1] == notes


def test_call_that_could_not_be_written_may_be_repeated(store, monkeypatch):
    def fail(log, line, **_):
        raise OSError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr("nemo_gym.capture.log_file.LogFile.append", fail)
        with pytest.raises(OSError, match="full"):
            store.put(entry(2, [*SECOND, 5, 9], [6], message("Through it.")))
    store.put(entry(3, [*SECOND, 5, 9], [6], message("Through it.")))
    store.put(entry(4, [*SECOND, 5, 9, 6, 9], [7], message("Outside.")))
    assert store.freeze("0-0").gaps == ()


@each_case("output", [[5, None], [{"role": "assistant", "content": 5}], "no list", None])
def test_odd_output_of_an_agent_is_replaced(output, tmp_path):
    store = FileTokenStore(tmp_path / str(output)[:8].strip("[{"))
    store.put(entry(0, FIRST, [3, 4], message("Yes.")))
    result = {"reward": 1.0, "response": {"output": output}}
    finalize_rollout_token_capture(result, "0-0", store)
    assert trajectory_of(result).completion_ids == [3, 4]


def test_result_of_a_program_has_lists(store):
    result = {"reward": 1.0, "response": {"output": [CALL, message("A door.")]}}
    finalize_rollout_token_capture(result, "0-0", store)
    assert orjson.loads(orjson.dumps(result)) == result
    assert trajectory_of(result).completion_ids == [3, 4, 9, 5]
