"""The Slurm job in which a process runs. The record of a run contains it."""

from __future__ import annotations

import os

from pydantic import BaseModel


class SlurmStep(BaseModel):
    """The Slurm job in which a process runs, and the attempt of this job."""

    job_id: str
    attempt: int
    """The number of the job's attempt, from 1. A requeued job keeps its id, but starts a new attempt."""
    nodes: str
    """The job's nodes, in Slurm's notation."""

    @classmethod
    def here(cls) -> SlurmStep | None:
        """Return the Slurm job of this process, or None if the process does not run in a Slurm job."""
        job_id, restarts = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "")
        if not job_id:
            return None
        attempt = int(restarts) + 1 if restarts.isdecimal() else 1
        return cls(job_id=job_id, attempt=attempt, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))
