"""Labels that name a sandbox's owner, read from environment variables."""

from __future__ import annotations

import os

_LABELS = {
    "team": "NEMO_GYM_TEAM",
    "user": "NEMO_GYM_USER",
    "workload": "NEMO_GYM_WORKLOAD",
    "run_id": "NEMO_GYM_RUN_ID",
    "slurm_job_id": "SLURM_JOB_ID",
    "slurm_job_name": "SLURM_JOB_NAME",
    "slurm_job_user": "SLURM_JOB_USER",
}


def labels() -> dict[str, str]:
    """Return the labels whose environment variable is set and not empty."""
    return {label: value for label, name in _LABELS.items() if (value := os.environ.get(name))}
