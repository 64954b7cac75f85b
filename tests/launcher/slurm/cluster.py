"""A Slurm cluster on this machine: real daemons, with several nodes that differ by name and port."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")
START_S = 100.0
CONFIG = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmdTimeout=10
CompleteWait=0
KillWait=5
OverTimeLimit=0
MinJobAge=3600
NodeName=ngs[1-{nodes}] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{first}-{last}] CPUs=1 RealMemory=1000
PartitionName=tests Nodes=ngs[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""


def missing_reason() -> str | None:
    """Return why there can be no cluster here, or None."""
    if os.getuid() != 0:
        return "Slurm's daemons need root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)} (Debian packages slurm-wlm, munge)" if absent else None


class Cluster:
    """The daemons, from entering the block to its end."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"ngs{number}" for number in range(1, nodes + 1)]
        # Not pytest's folder, which the user of munged cannot enter.
        self.folder = Path(tempfile.mkdtemp(prefix="ngs-"))
        self.config = self.folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.config)}
        self._daemons = ExitStack()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        self.folder.chmod(0o755)
        try:
            self._write_config()
            self._start_munged()
            (self.folder / "state").mkdir()
            self._start("slurmctld", "-D", "-f", str(self.config))
            for name in self.names:
                self.start_node(name)
            wait_for(self._is_idle, START_S, lambda: f"the nodes are not idle: {self._log_tail()}")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        self._nodes[name] = self._start("slurmd", "-D", "-f", str(self.config), "-N", name)

    def kill_node(self, name: str) -> None:
        """Kill the daemon of a node and all steps on it, as a crash of the machine would."""
        daemon = self._nodes[name]
        daemon.kill()
        daemon.wait()
        kill_all(steps_of(name))

    def call(self, *words: str, check: bool = True) -> str:
        """Run one of Slurm's commands, and return its output."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=START_S, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def state(self, job_id: str) -> dict[str, str]:
        """Return the fields of a job."""
        line = self.call("scontrol", "show", "job", "--oneliner", job_id)
        return dict(pair.split("=", 1) for pair in line.split() if "=" in pair)

    def _write_config(self) -> None:
        count = len(self.names)
        ports = free_ports(count + 1)
        first = ports[1]
        values = {"name": self.folder.name, "host": socket.gethostname(), "folder": self.folder, "nodes": count}
        self.config.write_text(CONFIG.format(**values, ports=ports, first=first, last=first + count - 1))

    def _start_munged(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed", "socket": "sock"}
        options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
        user = ("--reuid=munge", "--regid=munge", "--clear-groups")
        self._start("munged", "--foreground", "--force", *options, user=user)
        wait_for((folder / "munge.sock").exists, START_S, lambda: "munged has no socket")

    def _start(self, program: str, *words: str, user: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        # The daemons end with the tests, also if these are killed.
        command = ["setpriv", "--pdeathsig=TERM", *user, program, *words]
        log = self._daemons.enter_context((self.folder / f"{program}.log").open("ab"))
        process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)
        self._daemons.callback(end, process)
        return process

    def _is_idle(self) -> bool:
        idle = self.call("sinfo", "--noheader", "--states=idle", "--format=%D", check=False)
        return idle.strip() == str(len(self.names))

    def _has_no_job(self) -> bool:
        return not self.call("squeue", "--noheader", check=False).strip()

    def _log_tail(self) -> str:
        return "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("slurm*.log"))

    def _close(self) -> None:
        try:
            self.call("scancel", "--user=root", check=False)
            wait_for(self._has_no_job, START_S, lambda: "some jobs do not end")
        finally:
            self._daemons.close()
            kill_all(pid for name in self.names for pid in steps_of(name))
            shutil.rmtree(self.folder, ignore_errors=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a daemon."""
    process.terminate()
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def steps_of(node: str) -> list[int]:
    """Return the processes of all jobs on a node, those of Slurm that watch them first."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURMD_NODENAME={node}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    watchers = {parent for parent in found.values() if _program(parent).startswith("slurmstepd")}
    return [*watchers, *found]


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes, some of which may have ended already."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Return consecutive ports that nothing uses at the moment."""
    for first in range(17000, 19900, count):
        if all(map(_is_free, range(first, first + count))):
            return list(range(first, first + count))
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_for(condition: Callable[[], object], timeout_s: float, problem: Callable[[], str]) -> None:
    """Wait until the condition holds. Fail with the problem after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"after {timeout_s:g} s: {problem()}")
        time.sleep(0.2)
