"""Limit the thread pools of programs to the CPUs of their sandbox."""

from __future__ import annotations

CPU_CAP_ENV_VARS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "GOMAXPROCS",
    "CARGO_BUILD_JOBS",
    "RAYON_NUM_THREADS",
    "CMAKE_BUILD_PARALLEL_LEVEL",
)
"""Variables by which libraries and build tools learn how many threads to start."""


def cpu_cap_env(cpu: float | None) -> dict[str, str]:
    """Return variables for the `env` of a sandbox with this many CPUs, because programs count those of the machine."""
    return {} if cpu is None else dict.fromkeys(CPU_CAP_ENV_VARS, str(max(1, int(cpu))))
