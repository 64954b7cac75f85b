"""Write down where a run's head server listens, so that later commands find it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nemo_gym.config import RunConfig
from nemo_gym.http.runs import RunRecord, record_dir


def write_record(run: RunConfig) -> Path | None:
    """Note down a run of this process, for its user alone; the file's path, to be removed at the run's end."""
    folder = record_dir()
    if folder is None:
        return None
    record = RunRecord(
        pid=os.getpid(),
        host=run.head.host,
        port=run.head.port,
        working_dir=os.getcwd(),
        started_at=time.time(),
        run_token=run.run_token,
    )
    path = folder / f"{record.pid}-{record.port}.json"
    # Made anew: an older file of this name keeps the rights that it has.
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(record.model_dump_json())
    return path
