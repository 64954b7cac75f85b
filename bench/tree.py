"""The tree that is measured: the one that this program lies in, or another that `BENCH_TREE` names (see against.py).

The programs of `bench/` are always those of this tree; what they start is the other's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TREE_ENV_VAR = "BENCH_TREE"
HERE = Path(__file__).resolve().parent.parent
TREE = Path(os.environ.get(TREE_ENV_VAR) or HERE)
NG = (sys.executable, "-m", "nemo_gym.cli.main")
"""The command line of the product; its modules then come from the tree."""


def product_environment(runtime: str | Path, tree: Path = TREE) -> dict[str, str]:
    """What the product's commands are started with: a run that no other run sees, and modules of the tree only."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    if tree != HERE:
        # Whichever folder a process of it goes to, an installed copy of this tree must not be found first.
        others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        environment["PYTHONPATH"] = os.pathsep.join([str(tree), *others])
    return environment
