"""The plan of a submission: which commands run on which nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.hosts import is_loopback
from nemo_gym.config.models import RunConfig
from nemo_gym.config.overrides import Override
from nemo_gym.config.tls import scheme_of
from nemo_gym.errors import UsageError
from nemo_gym.launcher.slurm.job import SlurmJob
from nemo_gym.launcher.slurm.placement import Part, parts_of
from nemo_gym.launcher.slurm.submission import SubmissionFiles
from nemo_gym.paths import EXTRA_ROOTS_ENV_VAR
from nemo_gym.rollouts.job import EndToEndJob

ALL_ADDRESSES = "0.0.0.0"
CHOSEN_AT_START = {"resume_from_cache", "overwrite", "output_jsonl_fpath"}
"""Collection settings that the script sets itself."""
Spelling = Callable[[Sequence[Override]], list[str]]


@dataclass(frozen=True)
class Plan:
    """A Slurm job that is ready to be written as a script."""

    files: SubmissionFiles
    job: SlurmJob
    parts: list[Part]
    program: list[str]
    collect: list[str]
    """Arguments of the command that collects rollouts, without those that depend on the job's attempt."""
    serve: list[str]
    """Arguments of the command that starts the servers of all nodes except the first."""
    at_first: list[str]
    """Further arguments of the command that collects rollouts, on the first attempt of the job."""
    on_ray: bool
    """Whether Ray places the servers. In this case, Ray is started on all nodes."""
    scheme: str
    """The scheme of the head server's URL: http or https."""
    head_port: int | None
    """The port of the head server, if the config sets it."""
    extra_roots: str | None
    """The folders of --search-dir, joined by `os.pathsep`; None if there are none."""

    @property
    def sbatch(self) -> list[str]:
        job = self.job
        given = {
            "job-name": job.job_name or self.files.output.stem,
            "nodes": job.nodes,
            "ntasks-per-node": 1,
            "partition": job.partition,
            "time": job.time,
            "account": job.account,
            "qos": job.qos,
            "gpus-per-node": job.gpus_per_node,
            "cpus-per-task": job.cpus_per_node,
            "mem": job.mem,
            "output": self.files.folder / "job-%j.log",
            "open-mode": "append",
            "signal": f"B:USR1@{job.drain_s}",
        }
        words = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return [*words, "--requeue", *([] if job.cpus_per_node else ["--exclusive"]), *job.sbatch_option]

    def as_json(self, script: str) -> Mapping[str, object]:
        """Return the plan for `--resolve-only --json`."""
        return {
            "output": str(self.files.output),
            "folder": str(self.files.folder),
            "nodes": self.job.nodes,
            "parts": [{"nodes": part.nodes, "servers": part.servers} for part in self.parts],
            "sbatch": self.sbatch,
            "collect": [*self.program, *self.collect],
            "serve": [*self.program, *self.serve] if len(self.parts) > 1 else None,
            "script": script,
        }


def plan_of(
    run: RunConfig,
    job: SlurmJob,
    collection: EndToEndJob,
    configs: Sequence[str],
    overrides: Sequence[Override],
    *,
    own_keys: Collection[str],
    collecting: Spelling,
    serving: Spelling,
) -> Plan:
    """Return the plan of a submission. Raise `UsageError` if the collection cannot run as a job.

    `own_keys` are the settings that only the submission reads. `collecting` and `serving` return overrides as flags of
    the command that collects, and of the one that starts servers.
    """
    files = SubmissionFiles.of(collection.output_jsonl_fpath)
    if run.settings.is_open and job.nodes > 1:
        raise UsageError("run_token: false opens the servers to everyone on the cluster's network. Remove it.")
    _check_text(files, overrides)
    on_ray = run.settings.launcher == "ray"
    if on_ray and job.place:
        raise UsageError(
            "place: with the launcher ray, Ray places the servers. Remove --place, and set ray: in the servers' "
            "blocks instead."
        )
    parts = _ray_parts(run, job) if on_ray else _parts(run, job)
    own = _without(overrides, own_keys)
    words = [*(word for config in (*configs, str(files.token)) for word in ("--config", config))]
    shared = [*_reachable(run, job), *([] if run.settings.is_open else ["--loopback-requires-token", "true"])]
    first = ["--overwrite"] if collection.overwrite else []
    if collection.resume_from_cache:
        first = ["--resume" if collection.resume_from_cache is True else f"--resume={collection.resume_from_cache}"]
    return Plan(
        files=files,
        job=job,
        parts=parts,
        program=_program(job),
        collect=[
            *("eval", "run", *words, "--output", str(files.output)),
            *collecting(_without(own, CHOSEN_AT_START)),
            *shared,
        ],
        serve=["env", "start", *words, *serving(_without(own, EndToEndJob.model_fields)), *shared],
        at_first=first,
        on_ray=on_ray,
        scheme=scheme_of(run.tls),
        head_port=run.head.port if run.head.port_is_fixed else None,
        extra_roots=os.environ.get(EXTRA_ROOTS_ENV_VAR),
    )


def _parts(run: RunConfig, job: SlurmJob) -> list[Part]:
    return parts_of(run, job.nodes, job.place, models_everywhere=job.node_command is not None)


def _ray_parts(run: RunConfig, job: SlurmJob) -> list[Part]:
    return [Part((*range(job.nodes),), (*run.servers,), ())]


def _check_text(files: SubmissionFiles, overrides: Sequence[Override]) -> None:
    if "%" in str(files.folder) or "\n" in str(files.folder):
        raise UsageError(
            f"output: Slurm cannot write to {files.folder}, because a path must not contain '%' or a line break. "
            "Choose another path."
        )
    for override in overrides:
        if override.has_secret:
            # Reject a secret, because other users can read the script and the command lines on the nodes.
            raise UsageError(
                f"'{override.word}' has a secret, which others could read in the job's command lines. Set it in "
                "env.yaml, or write --KEY '${oc.env:NAME}' and export NAME."
            )


def _without(overrides: Sequence[Override], keys: Collection[str]) -> list[Override]:
    return [each for each in overrides if each.path[0] not in keys]


def _reachable(run: RunConfig, job: SlurmJob) -> list[str]:
    """Return the setting that lets the servers of several nodes reach each other, unless the config has one."""
    return ["--default-host", ALL_ADDRESSES] if job.nodes > 1 and is_loopback(run.head.host) else []


def _program(job: SlurmJob) -> list[str]:
    if job.program is not None or job.container is not None:
        return [job.program or "ng"]
    script = Path(sys.executable).with_name("ng")
    return [str(script)] if script.exists() else [sys.executable, "-m", "nemo_gym.cli.main"]
