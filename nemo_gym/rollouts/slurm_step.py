"""The Slurm job of a session, for the record of its run."""

from __future__ import annotations

import os

from pydantic import BaseModel


class SlurmStep(BaseModel):
    """The Slurm job in which a process runs."""

    job_id: str
    attempt: int
    """The number of the attempt, from 1. A requeued job starts again with the same id."""
    nodes: str
    """The job's nodes, in Slurm's notation."""

    @classmethod
    def here(cls) -> SlurmStep | None:
        """Return the job of this process, or None if Slurm did not start it."""
        job_id, restarts = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "")
        if not job_id:
            return None
        attempt = int(restarts) + 1 if restarts.isdecimal() else 1
        return cls(job_id=job_id, attempt=attempt, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))
