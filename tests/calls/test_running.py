"""Commands find the runs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

from nemo_gym.calls.running import RunRecord


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
