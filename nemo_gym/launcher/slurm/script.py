"""Write the batch script of a plan: shell variables with its values, followed by `job.sh`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.config.parts import NO_SERVER
from nemo_gym.launcher.slurm.plan import Plan
from nemo_gym.paths import EXTRA_ROOTS_ENV_VAR

BODY = Path(__file__).with_name("job.sh")


def script_of(plan: Plan) -> str:
    head, *others = plan.parts
    is_shared = bool(others)
    values = {
        "output": str(plan.files.output),
        "record": str(plan.files.run.record),
        "folder": str(plan.files.folder),
        "working_folder": str(Path.cwd()),
        "drain_s": str(plan.job.drain_s),
        "job_attempts": str(plan.job.job_attempts),
        "scheme": plan.scheme,
        "head_port": str(plan.head_port or ""),
        "node_command": plan.job.node_command or "",
        "on_ray": "yes" if plan.on_ray else "",
        "ray": _next_to(plan.program[0], "ray"),
        "only_on_head": (",".join(head.servers) or NO_SERVER) if is_shared and not plan.on_ray else "",
    }
    lists = {
        "program": plan.program,
        "collect": plan.collect,
        "serve": plan.serve,
        "at_first": plan.at_first,
        "part_nodes": [" ".join(map(str, part.nodes)) for part in others],
        "part_servers": [",".join(part.servers) for part in others],
        "part_only_here": [",".join(part.only_here) for part in others],
        "of_srun": _container_options(plan),
        "inside": _container_command(plan),
    }
    lines = ["#!/bin/bash", *(f"#SBATCH {_sbatch_word(word)}" for word in plan.sbatch), ""]
    lines += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    lines += [f"{name}=({_words(words)})" for name, words in lists.items()]
    if plan.extra_roots:
        lines.append(f"export {EXTRA_ROOTS_ENV_VAR}={shlex.quote(plan.extra_roots)}")
    return "\n".join([*lines, "", BODY.read_text(encoding="utf-8")])


def _next_to(program: str, name: str) -> str:
    """Return the command for the program `name`: its path in the folder of `program`, or only the name."""
    path = Path(program).with_name(name)
    return str(path) if path.is_absolute() and path.exists() else name


def _words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


def _sbatch_word(word: str) -> str:
    """Quote an option for an #SBATCH line, in which sbatch interprets only double quotes and backslashes."""
    if not set(word) & set(" \t\"'\\#"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _mounts(plan: Plan) -> list[str]:
    here, output = str(Path.cwd()), str(plan.files.output.parent)
    return [*dict.fromkeys([f"{here}:{here}", f"{output}:{output}", *plan.job.container_mount])]


def _container_options(plan: Plan) -> list[str]:
    job = plan.job
    if job.container is None or job.container_runtime != "pyxis":
        return []
    return [
        f"--container-image={job.container}",
        f"--container-mounts={','.join(_mounts(plan))}",
        f"--container-workdir={Path.cwd()}",
    ]


def _container_command(plan: Plan) -> list[str]:
    job = plan.job
    if job.container is None or job.container_runtime != "apptainer":
        return []
    binds = [word for mount in _mounts(plan) for word in ("--bind", mount)]
    gpus = ["--nv"] if job.gpus_per_node else []
    return ["apptainer", "exec", *gpus, *binds, "--pwd", str(Path.cwd()), job.container]
