"""The head server's list of the parts of a run."""

from __future__ import annotations

import time

import pytest

from nemo_gym.calls.joining import LOST_AFTER_S, PartReport
from nemo_gym.config.process import HeadSettings, OtherServer, ServerInstance
from nemo_gym.process.members import FORGOTTEN_AFTER_S, Members

ENVIRONMENT = OtherServer("resources_servers", "mcqa", "", 0)
MODEL = OtherServer("responses_api_models", "sample_model", "", 0)


def instance(name: str = "mcqa", host: str = "10.0.0.2", member: str = "left", **fields: object) -> ServerInstance:
    described = {
        "process_name": name, "server_type": ENVIRONMENT.type, "name": ENVIRONMENT.implementation, "dir_path": "/here",
        "entrypoint": "app.py", "host": host, "port": 12000, "url": f"http://{host}:12000", "pid": 7,
        "config_path": name, "start_time": 0.0, "machine": f"host of {member}", "member": member,
    }  # fmt: skip
    return ServerInstance.model_validate(described | fields)


def body(*instances: ServerInstance, run_id: str = "run") -> bytes:
    return PartReport(run_id=run_id, machine="m", instances=list(instances)).model_dump_json().encode()


@pytest.fixture
def members() -> Members:
    expected = {"mcqa": ENVIRONMENT, "policy_model": MODEL}
    settings = HeadSettings(
        host="127.0.0.1", port=11000, instances=[], expected=expected, run_id="run", run_token="x" * 16, config_yaml=""
    )
    return Members(settings)


def silence(members: Members, member_id: str, seconds: float) -> None:
    """Let a part's last report be older."""
    members._members[member_id].seen_at = time.monotonic() - seconds


def hosts_of(members: Members) -> list[str]:
    return [each.host for each in members.addresses("head").get("mcqa", ())]


def test_reported_servers_are_listed_until_they_leave(members):
    assert members.missing() == ["mcqa", "policy_model"]
    assert members.take("left", body(instance())) is None
    assert hosts_of(members) == ["10.0.0.2"]
    assert members.missing() == ["policy_model"]
    members.remove("left")
    assert hosts_of(members) == []


def test_same_server_on_two_machines_has_two_addresses(members):
    members.take("left", body(instance()))
    members.take("right", body(instance(host="10.0.0.3", member="right")))
    assert hosts_of(members) == ["10.0.0.2", "10.0.0.3"]


def test_changed_report_replaces_the_one_before(members):
    members.take("left", body(instance()))
    members.take("left", body(instance(host="10.0.0.9")))
    assert hosts_of(members) == ["10.0.0.9"]


def test_part_with_the_same_address_replaces_the_earlier_one(members):
    members.take("left", body(instance(needs_one_process=True)))
    assert members.take("restarted", body(instance(member="restarted", needs_one_process=True))) is None
    assert [each.member for each in members.addresses("head")["mcqa"]] == ["restarted"]


def test_silent_part_is_lost_until_it_reports_again(members):
    members.take("left", body(instance()))
    silence(members, "left", LOST_AFTER_S + 1)
    assert hosts_of(members) == []
    assert members.missing() == ["mcqa", "policy_model"]
    assert [member.is_lost for _, member in members.instances()] == [True]
    members.take("left", body(instance()))
    assert hosts_of(members) == ["10.0.0.2"]


def test_lost_part_is_forgotten_once_it_is_replaced(members):
    members.take("left", body(instance()))
    silence(members, "left", LOST_AFTER_S + 1)
    members.take("new", body(instance(host="10.0.0.4", member="new")))
    assert [each.host for each, _ in members.instances()] == ["10.0.0.4"]


def test_lost_part_is_shown_beside_an_older_replica(members):
    members.take("right", body(instance(host="10.0.0.3", member="right")))
    members.take("left", body(instance()))
    silence(members, "left", LOST_AFTER_S + 1)
    members._members["right"].joined_at -= 100
    assert len(list(members.instances())) == 2
    silence(members, "left", FORGOTTEN_AFTER_S + 1)
    assert [each.host for each, _ in members.instances()] == ["10.0.0.3"]


@pytest.mark.parametrize(
    ("report", "status", "reason"),
    [
        (body(instance(), run_id="another"), 410, "has ended"),
        (body(instance("mcq")), 422, "no server 'mcq'"),
        (body(instance("policy_model")), 422, "'policy_model' is resources_servers/mcqa here"),
        (body(instance(host="10.0.0.3", member="new", needs_one_process=True)), 409, "already on host of left"),
    ],
)  # fmt: skip
def test_part_of_another_run_or_config_is_refused(members, report, status, reason):
    members.take("left", body(instance()))
    refusal = members.take("new", report)
    assert refusal is not None
    assert refusal.status == status
    assert reason in refusal.reason
    assert hosts_of(members) == ["10.0.0.2"]


def test_open_run_cannot_be_joined(members):
    members.settings.run_token = None
    refusal = members.take("left", body(instance()))
    assert refusal is not None
    assert "open" in refusal.reason
