"""The measured source tree: this one, or the one in `BENCH_TREE` (see against.py).

The programs of `bench/` always come from this tree; the processes that they start come from the measured one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TREE_ENV_VAR = "BENCH_TREE"
HERE = Path(__file__).resolve().parent.parent
TREE = Path(os.environ.get(TREE_ENV_VAR) or HERE)
NG = (sys.executable, "-m", "nemo_gym.cli.main")
"""The command line of nemo_gym, with the modules of the measured tree."""


def product_environment(runtime: str | Path, tree: Path = TREE) -> dict[str, str]:
    """Return environment variables that isolate the run and select the modules of a tree."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    if tree != HERE:
        # Processes change their working folder and must not import the installed copy of this tree.
        others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        environment["PYTHONPATH"] = os.pathsep.join([str(tree), *others])
    return environment
