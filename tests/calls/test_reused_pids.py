"""A pid that the system has given to another process does not keep a record alive."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nemo_gym.calls.running import RunRecord, beginning_of, is_alive, live_runs
from nemo_gym.rollouts.control.registry import Collection, collections_here

HERE = os.getpid()


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"nemo_gym-{os.getuid()}"


def earlier() -> int:
    """Return the beginning of an earlier process with the pid of this one."""
    beginning = beginning_of(HERE)
    if beginning is None:
        pytest.skip("the system does not say when a process began")
    return beginning - 1


def test_process_is_known_by_its_beginning():
    assert is_alive(HERE)
    assert is_alive(HERE, beginning_of(HERE))
    assert not is_alive(HERE, earlier())


def test_run_of_an_ended_process_is_forgotten(records):
    run = RunRecord(pid=HERE, host="127.0.0.1", port=1, working_dir="/", started_at=time.time(), beginning=earlier())
    assert run.path is not None
    assert run.path.parent == records
    run.path.write_text(run.model_dump_json())
    assert live_runs() == []
    assert not run.path.exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_collection_of_an_ended_process_is_forgotten(records, is_there):
    folder = records / "collections"
    folder.mkdir(parents=True)
    records.chmod(0o700)
    beginning = earlier() + is_there
    output = Path("/out.jsonl")
    record = Collection(run_id="a" * 8, output=output, pid=HERE, started_at=0, folder=folder, beginning=beginning)
    record.path.write_text(record.model_dump_json())
    assert collections_here() == [record] * is_there
    assert record.path.exists() is is_there
