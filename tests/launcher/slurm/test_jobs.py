"""Collections as jobs of a real Slurm: however a job ends, every rollout is there once in the end."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from tests.launcher.slurm.conftest import Run

pytestmark = pytest.mark.slow


class Long(NamedTuple):
    """Jobs whose end the tests of this file do not wait for at once."""

    limited: Run
    """Reaches its time limit of one minute."""
    lost: Run
    """Loses its first node."""
    dead: str
    """That node."""


@pytest.fixture(scope="module", autouse=True)
def long(cluster, endpoint, tmp_path_factory) -> Long:
    limited, lost = (Run(cluster, endpoint, tmp_path_factory.mktemp(name) / "x.jsonl") for name in ("limited", "lost"))
    limited.submit("--time", "1", "--drain-s", "15")
    lost.submit("--nodes", "2")
    limited.pause()
    lost.pause()
    dead = nodes_of(lost)[0]
    cluster.kill_node(dead)
    return Long(limited, lost, dead)


def nodes_of(run: Run) -> list[str]:
    return run.cluster.call("scontrol", "show", "hostnames", run.cluster.state(run.job_id)["NodeList"]).split()


def sessions_of(run: Run) -> list[tuple[str, int]]:
    jobs = [session["slurm"] for session in (*run.record["earlier_sessions"], run.record)]
    return [(job["job_id"], job["attempt"]) for job in jobs]


def command_lines() -> bytes:
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end at any moment.
        with suppress(OSError):
            found += path.read_bytes()
    return found


def test_servers_on_two_nodes_share_the_rollouts(run):
    run.submit("--nodes", "2", "--place", "mcqa=others")
    run.pause()
    token = re.search(r"run_token: (\S{20,})", (run.folder / "run_token.yaml").read_text())[1]
    assert (run.folder / "run_token.yaml").stat().st_mode & 0o777 == 0o600
    shown = run.cluster.call("scontrol", "show", "job", "-dd", run.job_id) + (run.folder / "job.sbatch").read_text()
    assert token not in shown
    assert token.encode() not in command_lines()
    run.finish()
    run.check_complete()
    assert "joined the run at" in run.log
    nodes = run.cluster.state(run.job_id)["NodeList"]
    assert run.record["slurm"] == {"job_id": run.job_id, "attempt": 1, "nodes": nodes}
    status = run.ng("submit", "status", run.job_id)
    assert f"job {run.job_id}: COMPLETED" in status.stdout
    assert "80 planned = 80 scored + 0 failed + 0 unresolved" in status.stdout
    followed = run.ng("submit", "logs", str(run.output), "--follow").stdout
    assert "the collection ended with exit code 0, 0 rollouts are unresolved" in followed


def test_drained_and_requeued_job_continues(run):
    run.submit("--nodes", "2", "--drain-s", "30")
    run.pause()
    run.cluster.call("scancel", "--signal=USR1", "--batch", run.job_id)
    run.await_state("PENDING")
    drained = run.record
    assert drained["ended_by"].startswith("drain")
    assert drained["outcomes"]["unresolved"] > 0
    run.await_state("RUNNING")
    run.pause()
    run.cluster.call("scontrol", "requeue", run.job_id)
    run.await_state("PENDING")
    run.finish()
    run.check_complete()
    assert sessions_of(run) == [(run.job_id, 1), (run.job_id, 2), (run.job_id, 3)]


def test_cancelled_job_drains_and_can_be_resumed(run):
    run.submit("--drain-s", "20")
    run.pause()
    again = run.try_to_submit("--resume")
    assert again.returncode == 1
    assert f"job {run.job_id} is RUNNING and uses this output" in again.stderr
    cancelled = run.ng("submit", "cancel", str(run.folder))
    assert cancelled.returncode == 0, cancelled.stderr
    assert f"job {run.job_id}: CANCELLED. finished: 80 planned" in cancelled.stdout
    assert run.record["ended_by"].startswith("drain")
    first = run.job_id
    run.submit("--resume")
    run.finish()
    run.check_complete()
    assert sessions_of(run) == [(first, 1), (run.job_id, 1)]
    assert "has already ended: COMPLETED" in run.ng("submit", "cancel", run.job_id).stdout


def test_servers_that_cannot_start_fail_the_job(run, endpoint):
    taken = endpoint.rpartition(":")[2]
    port = f"+mcqa.resources_servers.mcqa.port={taken}"
    run.submit("--nodes", "2", "--place", "mcqa=others", port)
    run.await_state("FAILED")
    assert "no other node has mcqa, so the collection stops" in run.log
    assert f"port {taken}" in run.log


def test_refusal_passes_slurms_reason_on(run):
    refused = run.try_to_submit("--partition", "fast")
    assert refused.returncode == 1
    assert re.search(r"Error: sbatch refused the job: .*invalid partition.*\. The script is .*\.\n$", refused.stderr)


def test_unknown_job_is_reported(run):
    unknown = run.ng("submit", "status", "4711")
    assert unknown.returncode == 1
    assert "job 4711: Slurm does not know this job any more. Name the output of the run" in unknown.stderr


def test_job_of_dead_node_continues_elsewhere(long):
    long.lost.await_state("COMPLETED")
    assert long.dead not in nodes_of(long.lost)
    long.lost.check_complete()
    assert sessions_of(long.lost) == [(long.lost.job_id, 1), (long.lost.job_id, 2)]


def test_time_limit_drains_and_continues(long):
    long.limited.await_state("COMPLETED")
    long.limited.check_complete()
    sessions = sessions_of(long.limited)
    assert len(sessions) >= 2, long.limited.log
    assert sessions == [(long.limited.job_id, number) for number in range(1, len(sessions) + 1)]
    assert "the time limit is near, so the collection drains" in long.limited.log
    assert (
        orjson.loads(long.limited.ng("submit", "status", long.limited.job_id, "--json").stdout)["job"]["attempt"] >= 2
    )
