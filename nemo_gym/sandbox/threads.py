"""Environment variables that limit the threads of programs to the CPUs of their sandbox."""

from __future__ import annotations

CPU_CAP_ENV_VARS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS", "PYTHON_CPU_COUNT", "GOMAXPROCS", "CARGO_BUILD_JOBS",
    "RAYON_NUM_THREADS", "CMAKE_BUILD_PARALLEL_LEVEL",
)  # fmt: skip
"""The environment variables from which libraries and build tools read how many threads to start."""


def cpu_cap_env(cpu: float | None) -> dict[str, str]:
    """Return the environment variables for a sandbox with `cpu` CPUs, or an empty dict if `cpu` is None.

    Without these variables, programs count the CPUs of the whole machine and start as many threads.
    """
    return {} if cpu is None else dict.fromkeys(CPU_CAP_ENV_VARS, str(max(1, int(cpu))))
