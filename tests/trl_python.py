"""Find an interpreter that has TRL, which this one need not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
# Importing them would take half a minute on a busy machine.
HAS_TRL = """
from importlib.util import find_spec
raise SystemExit(not all(map(find_spec, ("datasets", "nemo_gym", "torch", "transformers", "trl"))))
"""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}


def python_with_trl() -> str:
    """Return the first interpreter that has TRL: this one, $NEMO_GYM_RL_PYTHON or that of `make rl`.

    If none has it, skip the test.
    """
    candidates = [sys.executable, os.environ.get("NEMO_GYM_RL_PYTHON"), str(REPOSITORY / ".venv-rl/bin/python")]
    for candidate in filter(None, candidates):
        if Path(candidate).is_file():
            tried = subprocess.run([candidate, "-c", HAS_TRL], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    pytest.skip("no Python with torch and TRL: run `make rl`, or set NEMO_GYM_RL_PYTHON")
