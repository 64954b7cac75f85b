"""One output has one writer: the second is refused while the first lives, however that one ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from nemo_gym.errors import DataError
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.lock import locked

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


def test_a_second_run_is_refused_with_the_process_of_the_first(files, holder):
    with pytest.raises(DataError) as told, locked(files):
        pass
    assert re.search(
        rf"out\.jsonl: another run is writing it \(process {holder.pid}, since \d{{4}}-\d\d-\d\d [\d:]{{8}}\)",
        str(told.value),
    )


def test_a_link_to_the_output_is_no_way_around_it(files, holder, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(files.results)
    with pytest.raises(DataError, match="another run is writing it"), locked(RunFiles(results=link)):
        pass


def test_the_lock_of_a_process_that_was_killed_is_free(files, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(timeout=10)
    assert files.lock.exists()
    with locked(files):
        assert files.lock.read_text().startswith(f"{os.getpid()} ")


def test_nothing_is_left_of_a_lock_whose_run_has_ended(files, holder):
    holder.communicate("", timeout=10)
    with locked(files):
        pass
    assert list(files.results.parent.iterdir()) == []


def test_of_many_that_come_and_go_one_at_a_time_holds_it(files):
    # Each counts in a file that it reads and writes back; two at a time would lose some.
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


def test_a_place_where_nothing_can_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    files = RunFiles(results=tmp_path / "file" / "out.jsonl")
    with pytest.raises(DataError, match="its folder cannot be made"), locked(files):
        pass


def test_an_output_that_is_a_folder_is_told_with_a_file_to_name(tmp_path):
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(DataError, match=r"out: is a folder\. Name a file in it, such as .*out/rollouts\.jsonl"),
        locked(RunFiles(results=tmp_path / "out")),
    ):
        pass
