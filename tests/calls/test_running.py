"""Commands find the runs on this machine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from nemo_gym.calls.running import RunRecord, add_run, live_runs, remove_run
from nemo_gym.rollouts.control.registry import registered
from nemo_gym.rollouts.job import RunFiles

pytestmark = pytest.mark.slow


def records_of(workplace):
    folder = Path(workplace.env["XDG_RUNTIME_DIR"]) / f"nemo_gym-{os.getuid()}"
    return {path: RunRecord.model_validate_json(path.read_bytes()) for path in folder.glob("*.json")}


def names(finished):
    return {each["config_path"] for each in json.loads(finished.out)}


def test_command_prefers_the_run_of_its_folder(workplace, tmp_path):
    here = workplace.start_servers(workplace.environment("here"))
    neighbour = shutil.copytree(workplace.folder, tmp_path / "neighbour")
    workplace.folder, home = neighbour, workplace.folder
    there = workplace.start_servers(workplace.environment("there"))
    ports = {name: int(command.head.rpartition(":")[2]) for name, command in (("here", here), ("there", there))}

    from_there = workplace.run("ng_status", "--json")
    assert names(from_there) == {"there"}
    assert str(ports["here"]) in from_there.err
    workplace.folder = home
    assert names(workplace.run("ng_status", "--json")) == {"here"}
    named = workplace.run("ng_status", "--json", f"+head_server.port={ports['there']}")
    assert names(named) == {"there"}
    assert named.err == ""

    assert here.end().code == 0
    assert [record.port for record in records_of(workplace).values()] == [ports["there"]]
    assert names(workplace.run("ng_status", "--json")) == {"there"}


AGENT = """
{name}_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""


def test_named_agent_selects_its_run(workplace):
    ports, policy = {}, "responses_api_models/sample_model/configs/sample_model.yaml"
    for name in ("older", "newer"):
        workplace.environment(name)
        workplace.write(f"{name}.yaml", AGENT.format(name=name))
        files = f"resources_servers/{name}/configs/{name}.yaml,{name}.yaml,{policy}"
        ports[name] = workplace.start_servers(f"+config_paths=[{files}]").head.rpartition(":")[2]
    task = {"responses_create_params": {"input": "Say something."}}
    workplace.write("in.jsonl", json.dumps(task))
    workplace.write("named.jsonl", json.dumps({**task, "agent_ref": {"name": "older_agent"}}))

    def collect(rows, *words):
        output = ("+output_jsonl_fpath=out.jsonl", "+overwrite=true")
        return workplace.run("ng_collect_rollouts", f"+input_jsonl_fpath={rows}.jsonl", *output, *words)

    for name, other in (("newer", "older"), ("older", "newer")):
        collected = collect("in", "--agent", f"{name}_agent")
        assert (collected.code, "1 planned = 1 scored" in collected.out) == (0, True), collected.err
        assert f":{ports[name]} (--head_server.port … selects another: {ports[other]})" in collected.err
    aggregated = workplace.run("ng_aggregate_rollouts", "+input_glob=out.jsonl", "+output_jsonl_fpath=all.jsonl")
    assert (aggregated.code, f":{ports['older']} (" in aggregated.err) == (0, True), aggregated.err
    files = ("--inputs", "out_materialized_inputs.jsonl", "--rollouts", "out.jsonl", "-o", "again.jsonl")
    graded = workplace.run("ng", "eval", "reverify", *files, "+force=true")
    assert (graded.code, f":{ports['older']} (" in graded.err) == (0, True), graded.err

    advice = (
        "agent 'older_agent' is not part of this run. Select the run that has it: "
        f"--head_server.port {ports['older']} (started in {workplace.folder}).\n"
    )
    refused = collect("named")
    assert (refused.code, refused.err.endswith(f"/named.jsonl:1: {advice}")) == (1, True), refused.err
    refused = collect("in", "--agent", "older_agent", f"+head_server.port={ports['newer']}")
    assert refused == (1, "", f"Error: agent_name: {advice}")
    refused = collect("in", "--agent", "oldest_agent")
    assert refused.err.endswith("agent 'oldest_agent' is not running. Did you mean 'older_agent'?\n")


def test_record_of_a_killed_run_is_ignored(workplace):
    killed = workplace.start_servers(workplace.environment())
    killed.end(signal.SIGKILL)
    assert len(records_of(workplace)) == 1
    finished = workplace.run("ng_status")
    assert finished.code == 1
    assert "Error: no servers are running" in finished.err
    assert records_of(workplace) == {}


def test_invalid_record_is_ignored(workplace):
    command = workplace.start_servers(workplace.environment())
    (record,) = records_of(workplace)
    record.with_name("torn.json").write_text('{"pid": 1')
    assert names(workplace.run("ng_status", "--json")) == {"plain"}
    assert command.end().code == 0


def test_run_starts_without_a_runtime_folder(workplace, tmp_path):
    instead = tmp_path / "instead"
    instead.mkdir()
    env = {"XDG_RUNTIME_DIR": str(tmp_path / "absent"), "TMPDIR": str(instead)}
    command = workplace.start_servers(workplace.environment(), **env)
    assert names(workplace.run("ng_status", "--json", **env)) == {"plain"}
    assert command.end().code == 0


def test_record_folder_is_private(workplace):
    command = workplace.start_servers(workplace.environment())
    (record,) = records_of(workplace)
    assert record.parent.stat().st_mode & 0o777 == 0o700
    assert command.end().code == 0


def test_proxy_is_not_used_for_local_servers(workplace):
    command = workplace.start_servers(workplace.environment())
    assert names(workplace.run("ng_status", "--json", http_proxy="http://127.0.0.1:9")) == {"plain"}
    assert command.end().code == 0


def test_two_runs_start_at_the_same_moment(workplace):
    config = workplace.environment()
    both = [workplace.start("ng_run", config) for _ in range(2)]
    for command in both:
        command.wait_for("head server: ")
    assert both[0].head != both[1].head
    assert [command.end().code for command in both] == [0, 0]


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """A folder for records in which no file can grow."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    yield tmp_path / f"nemo_gym-{os.getuid()}"
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_records_that_cannot_be_written_end_no_run(full_disk, caplog):
    record = RunRecord(pid=os.getpid(), host="127.0.0.1", port=1, working_dir="/", started_at=0.0)
    add_run(record)
    try:
        assert record in live_runs()
    finally:
        remove_run(record)
    with registered(RunFiles(results=full_disk / "x.jsonl"), "0123456789") as collection:
        assert collection is None
    assert [message.partition(", so ")[2] for message in caplog.messages] == [
        "commands in other terminals cannot find this run",
        "'ng eval ps' does not list this run",
    ]
    assert [path for path in full_disk.rglob("*") if path.is_file()] == []
