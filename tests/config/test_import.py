"""Importing the configuration must be cheap, because every server process does it."""

from __future__ import annotations

import subprocess
import sys


def test_omegaconf_is_imported_only_to_resolve():
    code = "import sys, nemo_gym.config.models; print('omegaconf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
