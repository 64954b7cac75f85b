"""Sandboxed programs: limits, checks, cancellation, and running as root or an unprivileged user."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

import nemo_gym
from nemo_gym import EnvironmentFailed
from nemo_gym.grading.confined import ConfinedPython, Limits, Program
from nemo_gym.sandbox.confinement.bubblewrap import find_bwrap
from nemo_gym.sandbox.confinement.cgroups import PREFIX, ControlGroup
from tests.conftest import PATIENCE_S
from tests.waiting import async_until

pytestmark = pytest.mark.bare

SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


@pytest.fixture
def python():
    confined = ConfinedPython(2, Limits(memory_mb=256, processes=8, scratch_mb=8))
    yield confined
    confined.close()


async def tried(python, code, *, trial_s=PATIENCE_S, **program):
    (trial,) = await python.run(Program([code], [""], [1_000], **program), trial_s=trial_s, total_s=2 * trial_s)
    return trial


@pytest.mark.needs_bubblewrap
async def test_programs_are_confined_if_bubblewrap_is_installed(python):
    assert (await python.level()).is_confined


@pytest.mark.needs_bubblewrap
async def test_each_limit_is_enforced(python):
    assert "MemoryError" in (await tried(python, "bytearray(300_000_000)")).error
    assert (
        "No space left"
        in (await tried(python, "for n in range(9): open(f'/tmp/{n}', 'wb').write(bytes(10**6))")).error
    )
    assert "File too large" in (await tried(python, "open('/tmp/x', 'wb').write(bytes(9 * 2**20))")).error
    forks = "import os, time\nfor n in range(9):\n    if os.fork() == 0: time.sleep(9)"
    assert "BlockingIOError" in (await tried(python, forks)).error
    assert (await tried(python, "print('x' * 2_000)")).how == "too much output"
    assert (await tried(python, "while True: pass", trial_s=0.3)).how == "out of time"


async def test_only_the_standard_library_can_be_imported(python):
    python.allow_unconfined = True
    shown = "import sys\nassert not [path for path in sys.path if 'packages' in path], sys.path\n"
    assert (await tried(python, f"{shown}import pip")).error.endswith("ModuleNotFoundError: No module named 'pip'\n")


@pytest.mark.parametrize("statement", ["exit(0)", "quit()", "help", "copyright", "credits", "license"])
async def test_builtins_of_interactive_sessions_are_defined(python, statement):
    python.allow_unconfined = True
    trial = await tried(python, statement)
    assert (trial.how, trial.error) == ("finished", "")


NAMESPACES = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, FORK = 0x10000000, 17
CLONE, ADD_KEY = {"x86_64": (56, 248), "aarch64": (220, 217)}[platform.machine()]

def name_of_error(*call):
    ctypes.set_errno(0)
    if libc.syscall(*call) == 0 and call[0] == CLONE:
        os._exit(0)
    return errno.errorcode.get(ctypes.get_errno(), "none")

print(name_of_error(CLONE, NEW_USER | FORK, 0, 0, 0, 0))
print(name_of_error(435, 0, 0), name_of_error(ADD_KEY, 0, 0, 0, 0, 0))
libc.unshare(NEW_USER)
print(errno.errorcode.get(ctypes.get_errno(), "none"))
"""


@pytest.mark.needs_bubblewrap
async def test_programs_cannot_create_user_namespaces(python):
    trial = await tried(python, NAMESPACES)
    assert trial.output.split() == ["EPERM", "ENOSYS", "EPERM", "EPERM"], trial


@pytest.mark.needs_bubblewrap
async def test_trials_after_the_total_time_are_not_run(python):
    program = Program(["import time; time.sleep(int(input()))"], ["0", *["60"] * 8], [10] * 9)
    ended = await python.run(program, trial_s=90, total_s=4)
    assert [each.how for each in ended][-1] == "not run"
    assert ended[0].how == "finished"
    assert len(ended) == 9


@pytest.mark.needs_bubblewrap
async def test_cancelled_run_leaves_no_process(python):
    await python.level()
    marker = f"given-up-{os.getpid()}"
    task = asyncio.create_task(tried(python, f"import time\n'{marker}'\ntime.sleep(60)", trial_s=60))
    await async_until(lambda: children_of(os.getpid()), PATIENCE_S)
    groups = set(own_groups())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # A killed process is a zombie until the event loop has read its exit code.
    await async_until(lambda: not children_of(os.getpid()), PATIENCE_S)
    # The slot is free again.
    assert (await tried(python, "print(1)")).output == "1\n"
    assert set(own_groups()) == groups


def own_groups():
    return Path("/sys/fs/cgroup").rglob(f"{PREFIX}{os.getpid()}-*")


def children_of(pid):
    """Return the bubblewrap processes that a process has started."""
    return [child for child in psutil.Process(pid).children() if child.name() == "bwrap"]


@pytest.mark.needs_bubblewrap
async def test_running_and_queued_programs_fail_on_close(python):
    await python.level()
    under_way = [asyncio.create_task(tried(python, "import time; time.sleep(60)", trial_s=60)) for _ in range(4)]
    await asyncio.sleep(0.5)
    python.close()
    for ended in await asyncio.gather(*under_way, return_exceptions=True):
        assert isinstance(ended, EnvironmentFailed)
        assert "the server is shutting down" in str(ended)
    assert (await tried(python, "print(1)")).output == "1\n"


@pytest.mark.needs_bubblewrap
def test_running_programs_end_with_the_event_loop():
    """Check a case in which asyncio's own subprocesses hang: all tasks are cancelled at once."""

    async def leave_some(after_s):
        python = ConfinedPython(3)
        await python.level()
        tasks = [asyncio.create_task(tried(python, "print(1)")) for _ in range(12)]
        await asyncio.sleep(after_s)
        python.close()
        return tasks

    for number in range(8):
        tasks = asyncio.run(leave_some(number * 0.01))
        assert all(task.done() for task in tasks)


@pytest.mark.needs_bubblewrap
async def test_sandbox_start_failure_is_an_environment_failure(python, monkeypatch, tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.symlink_to(find_bwrap())
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert (await python.level()).bwrap == str(bwrap)
    target = bwrap.readlink()
    bwrap.unlink()
    with pytest.raises(EnvironmentFailed, match=r"could not be started: .*bwrap.*(not found|No such file)"):
        await tried(python, "print(1)")
    bwrap.symlink_to(target)
    assert (await tried(python, "print(1)")).output == "1\n"


@pytest.mark.needs_bubblewrap
async def test_trials_share_only_scratch(python):
    code = "import sys\nprint(getattr(sys, 'seen', None))\nsys.seen = True"
    ended = await python.run(Program([code], ["", ""], [100, 100]), trial_s=100, total_s=200)
    assert [each.output for each in ended] == ["None\n", "None\n"]


@pytest.mark.needs_bubblewrap
@pytest.mark.parametrize(
    "value", ["None", "True", "-1.5", "'é\\n'", "b'x'", "(1, [2, {3}], frozenset({4}))", "{(1, 2): {'a': None}}", "1j"]
)
async def test_plain_data_passes_between_check_and_function(python, value):
    check = (
        f"def check(same):\n    given = {value}\n    got = same(given, also=given)\n    assert got == [given, given]"
    )
    trial = await tried(python, "def same(one, also): return [one, also]", function="same", check=check)
    assert json.loads(trial.output) == {"verdict": "passed", "why": ""}


@pytest.mark.needs_bubblewrap
async def test_check_may_be_bare_asserts_with_preamble(python):
    check = {"check": "assert twice(2) == helper(2)", "check_preamble": "def helper(n): return n + n"}
    trial = await tried(python, "def twice(n): return 2 * n", function="twice", **check)
    assert json.loads(trial.output)["verdict"] == "passed"


AS_NOBODY = '''
import asyncio, json
from nemo_gym.grading.confined import *

LOOK = """
import os
for pid in os.listdir("/proc"):
    if pid.isdecimal() and int(pid) != os.getpid():
        try: print(pid, os.listdir(f"/proc/{pid}/fd"))
        except OSError: print(pid, "is closed")
"""
BOMB = "import os\\nwhile True:\\n    try: os.fork()\\n    except OSError: pass"
SHARED = "import ctypes, os; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600)); os.memfd_create('x')"
KILL = "import os\\ntry: os.kill(-1, 9)\\nexcept OSError: pass\\nos.kill(1, 9)\\nprint(1)"

async def main():
    python = ConfinedPython(2)
    level = await python.level()
    found = [str(level)]
    for code in ("print(1)", LOOK, BOMB, SHARED, KILL):
        trial_s = 1 if code == BOMB else 30
        (trial,) = await python.run(Program([code], [""], [1000]), trial_s=trial_s, total_s=2 * trial_s)
        found.append([trial.how, trial.output, trial.error[-60:]])
    print(json.dumps(found))

asyncio.run(main())
'''


@pytest.mark.needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"needs {SYSTEM_PYTHON}, which every user can run")
def test_unprivileged_user_confines_too():
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, check=True
    )
    if version.stdout.strip() != b"True":
        pytest.skip(f"{SYSTEM_PYTHON} is older than 3.11")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(Path(nemo_gym.__file__).parent, Path(folder) / "nemo_gym")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        finished = subprocess.run(
            [SYSTEM_PYTHON, "-B", "-c", AS_NOBODY],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env={"PATH": os.defpath, "PYTHONPATH": folder},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    if "resource limits only" in finished.stdout or "EnvironmentFailed" in finished.stderr:
        pytest.skip("this machine does not allow user namespaces")
    assert finished.returncode == 0, finished.stderr
    level, plain, look, bomb, shared, kill = json.loads(finished.stdout)
    assert level.startswith("bubblewrap")
    assert plain[:2] == ["finished", "1\n"]
    assert look[:2] == ["finished", "1 is closed\n"]
    assert bomb[0] in ("out of time", "failed")
    # Without a control group, nothing else limits this memory.
    assert level == "bubblewrap, control groups" or (shared[1] == "-1\n" and "PermissionError" in shared[2])
    assert kill[:2] == ["finished", "1\n"] or kill[0] == "failed"


def test_control_group_kills_its_members_on_close():
    try:
        group = ControlGroup("test", memory_mb=64, processes=4)
    except OSError:
        pytest.skip("this process cannot create control groups")
    process = subprocess.Popen(["sleep", "60"])
    for file in group.join_files:
        Path(file).write_text(str(process.pid))
    group.close()
    assert process.wait(60) == -9
    assert not [file for file in group.join_files if Path(file).exists()]
    assert PREFIX in group.join_files[0]


FROM_ANOTHER_NAMESPACE = "from nemo_gym.sandbox.confinement.cgroups import remove_leftovers; remove_leftovers()"
ABANDON = """
import os
from nemo_gym.sandbox.confinement.cgroups import ControlGroup
print(*ControlGroup("test", memory_mb=64, processes=4).join_files, flush=True)
os._exit(0)
"""


@pytest.mark.needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process in another PID namespace like this")
def test_other_pid_namespaces_keep_live_groups():
    try:
        group = ControlGroup("test", memory_mb=64, processes=4)
    except OSError:
        pytest.skip("this process cannot create control groups")
    abandoned = subprocess.check_output([sys.executable, "-c", ABANDON], text=True).split()
    confined = [find_bwrap(), "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"]
    subprocess.run([*confined, sys.executable, "-c", FROM_ANOTHER_NAMESPACE], check=True)
    assert all(Path(file).exists() for file in group.join_files)
    assert not [file for file in abandoned if Path(file).exists()]
    group.close()
