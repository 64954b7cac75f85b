"""Typed access to rows."""

import pytest

from nemo_gym.schemas.row import Row, TaskKey, rows_in

NUMBERED = {"_ng_task_index": 3, "_ng_rollout_index": 1}


def test_key_and_rollout_id_come_from_the_numbers():
    row = Row(NUMBERED)
    assert (row.key, row.rollout_id, row.attempt) == (TaskKey(3, 1), "3-1", 0)
    assert row.of_attempt(2).rollout_id == "3-1-a2"
    assert Row({**NUMBERED, "_ng_rollout_id": "mine", "_ng_attempt_index": 1}).rollout_id == "mine-a1"
    assert Row({}).rollout_id is None


@pytest.mark.parametrize(("missing", "fields"), [("_ng_task_index", {}), ("_ng_rollout_index", {"_ng_task_index": 0})])
def test_missing_number_is_named(missing, fields):
    with pytest.raises(KeyError, match=missing):
        _ = Row(fields).key


@pytest.mark.parametrize("rollout_id", ["no spaces", "../up", "", 7])
def test_invalid_rollout_id_is_rejected(rollout_id):
    with pytest.raises(ValueError, match="is not a rollout id"):
        _ = Row({"_ng_rollout_id": rollout_id}).rollout_id


def test_fields_of_unexpected_types_count_as_absent():
    row = Row(
        {"_ng_task_index": True, "agent_ref": "a", "responses_create_params": [], "response": "r", "reward": True}
    )
    assert (row.task_index, row.agent, row.params, row.response, row.usage, row.reward) == (None,) * 6
    assert [Row({"reward": reward}).reward for reward in (1, 0.5, float("nan"), "1", None)] == [
        1.0,
        0.5,
        None,
        None,
        None,
    ]
    assert Row({"responses_create_params": {"metadata": {"extra_body": "{"}}}).extra_body is None


def test_row_is_a_view_and_changes_are_copies():
    fields = {**NUMBERED, "long": ["text"]}
    row = Row(fields)
    other = row.of_task(4).of_repeat(0)
    assert row.fields is fields
    assert (other.key, row.key) == (TaskKey(4, 0), TaskKey(3, 1))
    assert other.fields["long"] is fields["long"]


def test_failure_is_written_and_removed():
    row = Row({**NUMBERED, "failure_kind": "a field of the dataset"})
    assert row.without_outcome().fields == row.fields
    failed = row.with_failure("lost", "gone", server="s", tier="agent", may_retry=True)
    assert (failed.failure_class, failed.failure_message, failed.failure_server) == ("lost", "gone", "s")
    assert (failed.may_retry(default=False), failed.with_fields({"_ng_failure_terminal": 1}).may_retry(True)) == (
        True,
        False,
    )
    assert failed.without_outcome().fields == NUMBERED


def test_rows_are_read_from_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"reward": 1}\n\n{"agent_ref": {"name": "a"}}\n')
    assert [(row.reward, row.agent) for row in rows_in(path)] == [(1.0, None), (None, "a")]
