"""Jobs in worker processes that can be killed."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest

from nemo_gym.grading import WorkerCrashed, WorkerFailed, WorkerNotStarted, WorkerPool, WorkersBusy, WorkerTimedOut
from nemo_gym.paths import working_dir
from tests.conftest import PATIENCE_S

pytestmark = pytest.mark.slow

JOBS = """
import os, subprocess, sys, time

def endless():
    while True:
        pass

def uninterruptible():
    "One call in C that never releases the interpreter lock."
    import re
    re.search("(a+)+$", "a" * 60 + "!")

def append_and_crash(file):
    with open(file, "a") as marks:
        marks.write("once")
    crash()

def crash():
    os.kill(os.getpid(), 11)

def leave():
    sys.exit(3)

def swallow(megabytes):
    return len(bytearray(megabytes << 20))

def echo(value):
    return value

def print_and(value):
    print("noise on standard output", flush=True)
    return value

def own_pid(_=None):
    return os.getpid()

def start_a_child_and_hang(file):
    child = subprocess.Popen(["sleep", "600"])
    with open(file + ".part", "w") as written:
        written.write(str(child.pid))
    os.rename(file + ".part", file)
    endless()

def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.01)

class Own(Exception):
    def __init__(self, one, two):
        super().__init__(one)

def raise_one():
    raise KeyError("which one")

def raise_unpicklable_error():
    raise Own("first", "second")

def unpicklable():
    return lambda: None

class Named:
    @staticmethod
    def doubled(number):
        return 2 * number
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Import a module of hostile functions from a folder that is only on this process's `sys.path`."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "hostile_jobs.py").write_text(JOBS)
    sys.path.insert(0, str(folder))
    import hostile_jobs

    yield hostile_jobs
    sys.path.remove(str(folder))


@pytest.fixture
def pool():
    pool = WorkerPool(size=2, deadline_s=PATIENCE_S)
    yield pool
    pool.close()


async def test_function_result_is_returned(pool, jobs):
    assert await pool.run(Fraction, 3, 6) == Fraction(1, 2)
    assert await pool.run(jobs.echo, {"text": "ä\ud800", "large": b"x" * 3_000_000})
    assert await pool.run(jobs.Named.doubled, 21) == 42
    assert await asyncio.to_thread(pool.run_blocking, jobs.echo, "in a thread") == "in a thread"


async def test_worker_imports_the_package_of_its_parent(pool, tmp_path, monkeypatch):
    other = tmp_path / "nemo_gym" / "__init__.py"
    other.parent.mkdir()
    other.write_text("raise RuntimeError('a checkout of another package')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert await pool.run(working_dir) == working_dir()


def test_worker_starts_lazily_and_is_reused(pool, jobs):
    assert pool.pids() == []
    assert len({pool.run_blocking(jobs.own_pid) for _ in range(20)}) == 1
    assert len(pool.pids()) == 1


async def test_pool_size_limits_concurrent_jobs(pool):
    began = time.monotonic()
    await asyncio.gather(*(pool.run(time.sleep, 0.4) for _ in range(4)))
    assert time.monotonic() - began >= 0.8
    assert len(pool.pids()) == 2


@pytest.mark.parametrize("name", ["endless", "uninterruptible"])
async def test_endless_job_occupies_only_its_worker(pool, jobs, name):
    await pool.run(jobs.own_pid)
    hostile = asyncio.create_task(pool.run(getattr(jobs, name)))
    others = [await pool.run(jobs.echo, number) for number in range(50)]
    assert others == list(range(50))
    assert not hostile.done()
    pool.close()
    with pytest.raises(WorkerFailed):
        await hostile


@pytest.mark.parametrize("name", ["endless", "uninterruptible"])
async def test_job_past_its_deadline_ends_only_its_worker(pool, jobs, name, tmp_path):
    both = [asyncio.create_task(pool.run(jobs.wait_for, str(tmp_path / "go"))) for _ in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        while len(pool.pids()) < 2:  # noqa: ASYNC110 - workers send no signal
            await asyncio.sleep(0.01)
    before = pool.pids()
    (tmp_path / "go").touch()
    await asyncio.gather(*both)
    began = time.monotonic()
    with pytest.raises(WorkerTimedOut, match=f"hostile_jobs:{name} did not finish within 1 s"):
        await pool.run(getattr(jobs, name), deadline_s=1.0)
    assert time.monotonic() - began >= 1.0
    assert await pool.run(jobs.own_pid) in before
    assert len(pool.pids()) == 1


async def test_event_loop_is_not_blocked_by_jobs(pool, jobs):
    await pool.run(jobs.own_pid)
    hostile = asyncio.create_task(pool.run(jobs.uninterruptible))
    for _ in range(30):
        await asyncio.sleep(0.01)
    assert not hostile.done()
    pool.close()
    with pytest.raises(WorkerFailed):
        await hostile


async def test_job_may_have_its_own_deadline(jobs):
    pool = WorkerPool(size=1, deadline_s=0.2)
    with pytest.raises(WorkerTimedOut, match=r"within 0\.3 s"):
        await pool.run(jobs.endless, deadline_s=0.3)
    assert await pool.run(time.sleep, 0.4, deadline_s=PATIENCE_S) is None
    pool.close()


@pytest.mark.parametrize(("name", "cause"), [("crash", "SIGSEGV"), ("leave", "exit code 3")])
async def test_crashed_worker_is_reported_and_replaced(pool, jobs, name, cause):
    with pytest.raises(WorkerCrashed, match=rf"hostile_jobs:{name} did not finish: its process ended \({cause}\)"):
        await pool.run(getattr(jobs, name))
    assert await pool.run(jobs.echo, 1) == 1


@pytest.mark.parametrize("is_dying", [False, True])
async def test_idle_worker_killed_from_outside_is_replaced(pool, jobs, is_dying):
    first = await pool.run(jobs.own_pid)
    if is_dying:
        # The job is sent to a worker that cannot begin it, because it is stopped until it is killed.
        os.kill(first, signal.SIGSTOP)
        job = asyncio.create_task(pool.run(jobs.own_pid))
        await asyncio.sleep(0.2)
    os.kill(first, signal.SIGKILL)
    second = await (job if is_dying else pool.run(jobs.own_pid))
    assert second != first
    assert pool.pids() == [second]


async def test_job_whose_worker_dies_does_not_run_twice(pool, jobs, tmp_path):
    await pool.run(jobs.own_pid)
    with pytest.raises(WorkerCrashed, match=r"append_and_crash did not finish: its process ended \(SIGSEGV\)"):
        await pool.run(jobs.append_and_crash, str(tmp_path / "marks"))
    assert (tmp_path / "marks").read_text() == "once"


async def test_memory_limit_is_enforced(jobs):
    pool = WorkerPool(size=1, deadline_s=PATIENCE_S, memory_limit_bytes=512 << 20)
    assert await pool.run(jobs.swallow, 16) == 16 << 20
    with pytest.raises(WorkerCrashed, match="ran out of memory"):
        await pool.run(jobs.swallow, 4096)
    assert await pool.run(jobs.swallow, 16) == 16 << 20
    pool.close()


async def test_job_exception_reaches_caller_with_traceback(pool, jobs):
    with pytest.raises(KeyError, match="which one") as failure:
        await pool.run(jobs.raise_one)
    assert "in raise_one" in failure.value.__notes__[0]
    with pytest.raises(RuntimeError, match="Own: first"):
        await pool.run(jobs.raise_unpicklable_error)
    with pytest.raises(Exception, match="pickle"):
        await pool.run(jobs.unpicklable)
    assert len(pool.pids()) == 1


async def test_printing_does_not_corrupt_the_result(pool, jobs):
    assert await pool.run(jobs.print_and, "result") == "result"


async def test_unimportable_function_is_rejected(pool):
    def inner():
        pass

    for function in (inner, lambda: None):
        with pytest.raises(ValueError, match="importable by its name"):
            await pool.run(function)
    assert pool.pids() == []


async def test_failing_prepare_raises_worker_not_started(jobs):
    pool = WorkerPool(size=1, deadline_s=1.0, prepare=jobs.raise_one)
    with pytest.raises(WorkerNotStarted, match=r"a worker for .* did not start: its process ended \(exit code 1\)"):
        await pool.run(time.sleep, 0)


async def test_imports_do_not_count_toward_the_deadline(tmp_path, monkeypatch):
    # Only workers import it slowly. A busy machine needs less than the deadline for the job itself.
    source = f"import os, time; time.sleep(1.6 * (os.getppid() == {os.getpid()}))\n"
    source += "def answer(): return 42\ndef prepare(): pass\n"
    (tmp_path / "slow_to_import.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import slow_to_import

    for prepare in (None, slow_to_import.prepare):
        pool = WorkerPool(size=1, deadline_s=1.5, prepare=prepare)
        assert await pool.run(slow_to_import.answer) == 42
        pool.close()


async def test_jobs_beyond_the_queue_limit_are_rejected(jobs):
    pool = WorkerPool(size=1, deadline_s=PATIENCE_S, max_waiting=2)
    accepted = [asyncio.create_task(pool.run(time.sleep, 0.2)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(WorkersBusy, match="too many jobs"):
        await pool.run(jobs.echo, 1)
    await asyncio.gather(*accepted)
    assert await pool.run(jobs.echo, 1) == 1
    pool.close()


async def test_cancelled_waiting_job_never_runs(jobs, tmp_path):
    pool = WorkerPool(size=1, deadline_s=PATIENCE_S)
    first = asyncio.create_task(pool.run(jobs.wait_for, str(tmp_path / "go")))
    waiting = asyncio.create_task(pool.run(os.mkdir, tmp_path / "made"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    (tmp_path / "go").touch()
    await first
    assert await pool.run(os.listdir, tmp_path) == ["go"]
    pool.close()


async def test_closed_pool_kills_jobs_and_can_be_reused(pool, jobs, tmp_path):
    hostile = asyncio.create_task(pool.run(jobs.start_a_child_and_hang, str(tmp_path / "begun")))
    pid = await pool.run(jobs.own_pid)
    await pool.run(jobs.wait_for, str(tmp_path / "begun"))
    pool.close()
    with pytest.raises(WorkerCrashed, match="SIGKILL"):
        await hostile
    assert not is_running(pid)
    assert await pool.run(jobs.own_pid) != pid


def test_threads_and_loops_share_one_pool(pool, jobs):
    found = []
    threads = [
        threading.Thread(target=lambda number=number: found.append(asyncio.run(pool.run(jobs.echo, number))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))


async def test_child_processes_end_with_their_job(pool, jobs, tmp_path):
    file = tmp_path / "pid"
    # Longer than a busy machine needs to start the child.
    with pytest.raises(WorkerTimedOut):
        await pool.run(jobs.start_a_child_and_hang, str(file), deadline_s=5.0)
    wait_until_gone(int(file.read_text()))


def test_garbage_collected_pool_ends_its_workers(jobs):
    pool = WorkerPool(size=1, deadline_s=PATIENCE_S)
    pid = pool.run_blocking(jobs.own_pid)
    del pool
    gc.collect()
    wait_until_gone(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's signal at a parent's end is Linux's")
@pytest.mark.parametrize("ending", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_workers_end_with_their_parent(ending, jobs):
    script = (
        "import asyncio, os, sys, time\n"
        f"sys.path.insert(0, {str(Path(jobs.__file__).parent)!r})\n"
        "import hostile_jobs\n"
        "from nemo_gym.grading import WorkerPool\n"
        "async def main():\n"
        "    busy = asyncio.ensure_future(pool.run(hostile_jobs.uninterruptible))\n"
        "    await pool.run(time.sleep, 0.1)\n"
        "    print(*pool.pids(), flush=True)\n"
        f"    {ending}\n"
        # An ordinary exit waits for the busy job.
        "pool = WorkerPool(size=2, deadline_s=5.0)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    pids = [int(pid) for pid in parent.stdout.split()]
    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid)


def wait_until_gone(pid):
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
