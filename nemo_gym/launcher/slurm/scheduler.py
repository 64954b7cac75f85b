"""Run Slurm's commands, and parse their output."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import LaunchError

TIMEOUT_S = 60.0
"""Timeout of a call in seconds. Slurm's own commands give up earlier."""
HAS_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
_PREFIX = re.compile(r"^\w+: (?:error: |fatal: )?")
_BETWEEN_FIELDS = re.compile(r" (?=[A-Za-z:/]+=)")


class JobState(NamedTuple):
    """A job as Slurm reports it."""

    job_id: str
    state: str
    """Slurm's name of the state, such as PENDING, RUNNING or COMPLETED."""
    reason: str = ""
    """The reason why the job is waiting or has failed, if Slurm reports one."""
    elapsed: str = ""
    limit: str = ""
    nodes: str = ""
    attempt: int = 1
    """The number of the current start: 1, plus 1 for every requeue."""
    log: str = ""
    """The path of the job's log."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended and will not run again."""
        return self.state in HAS_ENDED


def submit(script: Path) -> str:
    """Submit a batch script and return the job's id. Raise `LaunchError` with Slurm's reason if it is refused."""
    reply = _call(["sbatch", "--parsable", str(script)])
    if reply.returncode:
        raise LaunchError(f"sbatch refused the job: {_reason(reply)}. The script is {script}.")
    # If Slurm has several clusters, the name of the cluster follows the id after a semicolon.
    return reply.stdout.strip().splitlines()[-1].partition(";")[0]


def state_of(job_id: str) -> JobState | None:
    """Return the state of a job, or None if Slurm does not know it any more."""
    reply = _call(["scontrol", "show", "job", "--oneliner", job_id])
    if reply.returncode == 0 and "JobId=" in reply.stdout:
        return _parsed(job_id, reply.stdout)
    if reply.returncode and "Invalid job id" not in reply.stderr:
        raise LaunchError(f"scontrol cannot report job {job_id}: {_reason(reply)}. Try again.")
    return _accounted(job_id)


def _parsed(job_id: str, line: str) -> JobState:
    # Split only at spaces before a key, because a value, such as a job's name, may contain spaces.
    fields = dict(pair.split("=", 1) for pair in _BETWEEN_FIELDS.split(line.strip()) if "=" in pair)
    known = {key: "" if value in ("None", "(null)", "N/A") else value for key, value in fields.items()}
    return JobState(
        job_id,
        known.get("JobState", "UNKNOWN"),
        reason=known.get("Reason", ""),
        elapsed=known.get("RunTime", ""),
        limit=known.get("TimeLimit", ""),
        nodes=known.get("NodeList", ""),
        attempt=int(known.get("Restarts") or 0) + 1,
        log=known.get("StdOut", ""),
    )


def _accounted(job_id: str) -> JobState | None:
    """Return the state of an old job from `sacct`, or None, for example if the cluster has no accounting."""
    words = ["sacct", "--noheader", "--parsable2", "--allocations", "--jobs", job_id]
    try:
        reply = _call([*words, "--format=State,Elapsed,Timelimit,NodeList"])
    except LaunchError:
        return None
    if reply.returncode or not (lines := reply.stdout.strip().splitlines()):
        return None
    state, elapsed, limit, nodes = (*lines[-1].split("|"), "", "", "")[:4]
    # Keep the first word, because the state of a cancelled job also names the user who cancelled it.
    return JobState(job_id, state.partition(" ")[0], elapsed=elapsed, limit=limit, nodes=nodes)


def signal_script(job_id: str, name: str) -> bool:
    """Send a signal to the batch script of a job. Return False if Slurm refuses, for example after the job's end."""
    return _call(["scancel", "--batch", f"--signal={name}", job_id]).returncode == 0


def cancel(job_id: str) -> None:
    """Cancel a job. Raise `LaunchError` if Slurm refuses."""
    reply = _call(["scancel", job_id])
    if reply.returncode:
        raise LaunchError(f"scancel refused job {job_id}: {_reason(reply)}.")


def _call(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, capture_output=True, check=False, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise LaunchError(
            f"{words[0]} was not found: Slurm is not installed on this machine, or not on the PATH. Run this on "
            "a login node of the cluster. `ng submit … --resolve-only` prints the script without Slurm."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"{words[0]} has not answered for {TIMEOUT_S:g} s. Check the cluster with sinfo, then try again."
        ) from error


def _reason(reply: subprocess.CompletedProcess[str]) -> str:
    lines = [_PREFIX.sub("", line).strip().rstrip(".") for line in (reply.stderr or reply.stdout).splitlines()]
    return ". ".join(filter(None, lines)) or f"exit code {reply.returncode}"
