"""Parameters of a Slurm job that collects rollouts."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")
_UNLIMITED = {"INFINITE", "UNLIMITED", "-1"}


class SlurmJob(BaseModel):
    """The settings of a Slurm job, such as its nodes, its container and its time limit."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, coerce_numbers_to_str=True)

    nodes: PositiveInt = 1
    """The number of nodes. The first node runs the head server and the collection."""
    partition: str | None = None
    """The partition. Default: that of the cluster."""
    time: str | None = None
    """The time limit, such as 4:00:00 or 2-00:00:00. Default: that of the partition."""
    account: str | None = None
    """The account to charge."""
    qos: str | None = None
    """The quality of service, passed to sbatch as --qos."""
    gpus_per_node: str | None = None
    """GPUs of each node, such as 8 or h100:8."""
    cpus_per_node: PositiveInt | None = None
    """CPUs of each node. Default: the whole node (--exclusive)."""
    mem: str | None = None
    """Memory of each node, such as 64G. Default: that of the partition."""
    job_name: str | None = None
    """The name of the job. Default: the name of the output."""
    sbatch_option: list[str] = Field(default_factory=list)
    """Another option of sbatch, such as --sbatch-option=--constraint=a100; may be repeated."""
    place: list[str] = Field(default_factory=list)
    """The nodes of a server, as NAME=head, NAME=others, NAME=all or NAME=0,2-3; may be repeated. Default: model
    servers, and servers that must run in one process, on the first node; the others on all nodes."""
    node_command: str | None = None
    """A shell command that runs on every node during the whole job, such as one that serves the model. If it
    is set, model servers run on all nodes by default."""
    container: str | None = None
    """The image of the container in which all programs run on the nodes."""
    container_runtime: Literal["pyxis", "apptainer"] = "pyxis"
    """The program that runs the container."""
    container_mount: list[str] = Field(default_factory=list)
    """A folder to mount in the container, as SOURCE:TARGET; may be repeated. The working folder and the
    folder of the output are always mounted."""
    program: str | None = None
    """The path of ng on the nodes. Default: the ng that runs this command; in a container, the ng on its PATH."""
    drain_s: PositiveInt = 120
    """Seconds before the time limit at which the job drains: running rollouts may finish, but no new ones start."""
    job_attempts: PositiveInt = 20
    """The maximum number of starts of the job. If the time limit leaves rollouts unfinished, the job is requeued."""

    @field_validator("time", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, int):
            # Reject numbers, because YAML reads 4:00:00 as 14400, which Slurm takes for minutes.
            raise ValueError(
                f"it is the number {value}, perhaps because YAML reads a time as seconds. Put it in quotes"
            )
        return value

    @model_validator(mode="after")
    def _leaves_time_to_drain(self) -> Self:
        if self.time is not None and self.time.upper() not in _UNLIMITED:
            limit_s = seconds_of(self.time)
            if limit_s <= self.drain_s:
                raise ValueError(
                    f"time {self.time} is {limit_s} s, but the job starts no rollouts in its last {self.drain_s} s. "
                    "Raise --time or lower --drain-s"
                )
        return self


def seconds_of(time: str) -> int:
    """Parse a time limit in Slurm's notation and return seconds. Raise `ValueError` if it is invalid."""
    found = _TIME.fullmatch(time)
    if found is None:
        raise ValueError(f"time must be minutes, hours:minutes:seconds or days-hours:minutes:seconds, not '{time}'")
    days, parts = int(found["days"] or 0), [int(part) for part in found["parts"].split(":")]
    if found["days"] or len(parts) == 3:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    else:
        hours, minutes, seconds = 0, parts[0], parts[1] if len(parts) == 2 else 0
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
