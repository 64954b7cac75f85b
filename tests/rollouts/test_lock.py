"""The lock of an output: a second run is rejected until the first one ends, normally or not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.lock import locked
from tests.each_case import each_case

pytestmark = pytest.mark.slow

HOLD = """
import sys
from pathlib import Path
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.lock import locked

with locked(RunFiles(results=Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path):
    return RunFiles(results=tmp_path / "new" / "out.jsonl")


@pytest.fixture
def holder(files):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, files.results], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_second_run_is_rejected_with_holders_process(files, holder):
    with pytest.raises(DataError) as error, locked(files):
        pass
    assert re.search(
        rf"out\.jsonl: another run is writing this file \(process {holder.pid}, since \d{{4}}-\d\d-\d\d [\d:]{{8}}\)",
        str(error.value),
    )


@each_case("suffix", [".jsonl", "_failures.jsonl", "_materialized_inputs.jsonl", "_run.json"])
def test_pipe_in_place_of_a_file_is_rejected(tmp_path, suffix):
    pipe = tmp_path / suffix / f"out{suffix}"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    files = RunFiles(results=pipe.parent / "out.jsonl")
    with pytest.raises(DataError, match=f"out{suffix}: is not a regular file"), locked(files):
        pass
    assert pipe.is_fifo()


@each_case("path", ["/dev/stdout", "/dev/null", "/dev/fd/1", "/proc/self/fd/1"])
def test_descriptor_as_output_is_rejected(path):
    with pytest.raises(DataError, match=f"{path}: is not a regular file"), locked(RunFiles(results=Path(path))):
        pass


def test_link_to_the_output_has_the_same_lock(files, holder, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(files.results)
    with pytest.raises(DataError, match="another run is writing this file"), locked(RunFiles(results=link)):
        pass


def test_lock_of_a_killed_process_is_free(files, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(timeout=100)
    assert files.lock.exists()
    with locked(files):
        assert files.lock.read_text().startswith(f"{os.getpid()} ")


def test_lock_file_is_removed_at_the_end(files, holder):
    holder.communicate("", timeout=100)
    with locked(files):
        pass
    assert list(files.results.parent.iterdir()) == []


def test_only_one_of_many_processes_holds_lock(files):
    # Each process increments a counter in a file. Two lock holders at once would lose increments.
    script = """
        import sys, time
        from pathlib import Path
        from nemo_gym.errors import DataError
        from nemo_gym.rollouts.job import RunFiles
        from nemo_gym.rollouts.lock import locked

        files, counter, done = RunFiles(results=Path(sys.argv[1])), Path(sys.argv[2]), 0
        while done < 50:
            try:
                with locked(files):
                    counter.write_text(str(int(counter.read_text()) + 1))
                    done += 1
            except DataError:
                time.sleep(0.0001)
    """
    counter = files.results.parent.with_name("counter")
    counter.write_text("0")
    words = [sys.executable, "-c", "\n".join(line[8:] for line in script.splitlines()), files.results, counter]
    processes = [subprocess.Popen(words) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert counter.read_text() == "150"


def test_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    files = RunFiles(results=tmp_path / "file" / "out.jsonl")
    with pytest.raises(DataError, match="cannot create its folder"), locked(files):
        pass


@each_case("occupy", [Path.touch, lambda path: path.symlink_to("missing")])
def test_other_file_in_place_of_the_folder_is_rejected(tmp_path, occupy):
    files = RunFiles(results=tmp_path / occupy.__name__ / "out.jsonl")
    files.results.parent.mkdir()
    occupy(files.folder)
    before = list(files.results.parent.iterdir())
    with pytest.raises(DataError, match=r"out_run: the run's folder cannot be created \(File exists\)"), locked(files):
        pass
    assert list(files.results.parent.iterdir()) == before


def test_only_an_empty_folder_is_removed(files):
    with locked(files):
        files.logs.mkdir()
    assert files.logs.is_dir()
    files.logs.rmdir()
    with locked(files):
        assert files.folder.is_dir()
    assert not files.folder.exists()


def test_folder_as_output_is_rejected_with_suggestion(tmp_path):
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(DataError, match=r"out is a folder\. Name a file in it, such as .*out/rollouts\.jsonl"),
        locked(RunFiles(results=tmp_path / "out")),
    ):
        pass
