"""The folder of a submitted run, next to its output."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym.errors import DataError
from nemo_gym.launcher.slurm import scheduler
from nemo_gym.rollouts.job import RunFiles


class SubmissionFiles(BaseModel):
    """The files of a submission, named after the output of the run."""

    model_config = ConfigDict(frozen=True)

    output: Path
    """The absolute path of the scored rollouts."""

    @classmethod
    def of(cls, results: Path) -> Self:
        return cls(output=results.absolute())

    @property
    def folder(self) -> Path:
        """The folder of all files of the submission, except the output."""
        return self.output.with_name(f"{self.output.stem}_slurm")

    @property
    def script(self) -> Path:
        return self.folder / "job.sbatch"

    @property
    def token(self) -> Path:
        """A config file with the run token. Only the user who submitted the run can read it."""
        return self.folder / "run_token.yaml"

    @property
    def ray_token(self) -> Path:
        """A file with the token of the Ray cluster. Only the user who submitted the run can read it."""
        return self.folder / "ray_token"

    @property
    def control(self) -> Path:
        """The folder for the socket with which `ng eval ctl` controls the collection."""
        return self.folder / "control"

    @property
    def submission(self) -> Path:
        """The JSON file with the `Submission`."""
        return self.folder / "submission.json"

    @property
    def run(self) -> RunFiles:
        return RunFiles(results=self.output)

    def log_of(self, job_id: str) -> Path:
        """Return the log file of the job's script and of the collection."""
        return self.folder / f"job-{job_id}.log"

    def log_of_node(self, name: str) -> Path:
        """Return the log file of the servers on a node other than the first."""
        return self.folder / f"node-{name}.log"


class Submission(BaseModel):
    """The record of a submitted job. `write_submission` stores it in the submission's folder."""

    job_id: str
    output: Path
    nodes: int
    drain_s: int
    submitted_at: str
    """The time of the submission in ISO 8601, UTC."""

    @property
    def files(self) -> SubmissionFiles:
        return SubmissionFiles(output=self.output)


def write_folder(files: SubmissionFiles, script: str) -> None:
    """Create the folder of a submission with its script and new tokens."""
    shutil.rmtree(files.control, ignore_errors=True)
    files.folder.mkdir(parents=True, exist_ok=True)
    files.control.mkdir(mode=0o700)
    _write_private(files.token, f"run_token: {secrets.token_urlsafe(32)}\n")
    _write_private(files.ray_token, secrets.token_hex(32))
    files.script.write_text(script, encoding="utf-8")


def _write_private(path: Path, text: str) -> None:
    # Remove an existing file first, because a file that is overwritten keeps its old permissions.
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def write_submission(submission: Submission) -> None:
    """Record a submitted job in its folder."""
    files = submission.files
    partial = files.submission.with_suffix(".partial")
    partial.write_text(submission.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(files.submission)


def read_submission(files: SubmissionFiles) -> Submission | None:
    """Return the last submission to Slurm that writes to an output, or None if the output was never submitted."""
    try:
        return Submission.model_validate_json(files.submission.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise DataError(
            f"{files.submission}: the file is not a valid record of a submission ({error.error_count()} errors). "
            "Remove the file, and use Slurm's commands for the job."
        ) from error


def find(name: str) -> Submission:
    """Return the submission that a job id, a folder or an output names. Raise `DataError` if there is none."""
    if name.isdecimal() and not Path(name).exists():
        return _of_job(name)
    path = Path(name).absolute()
    folder = path if (path / "submission.json").exists() else SubmissionFiles.of(path).folder
    found = read_submission(SubmissionFiles(output=folder.with_name(f"{folder.name.removesuffix('_slurm')}.jsonl")))
    if found is None:
        raise DataError(
            f"{name}: there is no submission here ({folder / 'submission.json'} is missing). Name the output, its "
            "folder OUTPUT_slurm, or the job id."
        )
    # Use the current path, because the folder may have been moved or mounted elsewhere since the submission.
    return found.model_copy(update={"output": folder.with_name(found.output.name)})


def _of_job(job_id: str) -> Submission:
    state = scheduler.state_of(job_id)
    if state is None or not state.log:
        known = "Slurm does not know this job any more" if state is None else "Slurm does not know its log file"
        raise DataError(f"job {job_id}: {known}. Name the output of the run or its folder instead.")
    folder = Path(state.log).parent
    if not (folder / "submission.json").exists():
        raise DataError(
            f"job {job_id}: {folder} has no submission.json. Name a job that was submitted with ng submit."
        )
    found = find(str(folder))
    if found.job_id != job_id:
        raise DataError(f"job {job_id}: {found.output} has been submitted again as job {found.job_id}. Name that job.")
    return found
