"""Run the own tests of copied server folders."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

from tests.published.style.folders import HERE

PATIENCE_S = 400


class OwnTests(threading.Thread):
    """A background run of the folders' own tests in which the module `hidden` cannot be imported."""

    def __init__(self, project, hidden, folders, **env):
        super().__init__()
        self._command = [sys.executable, HERE / "run_folders.py", project.folder, hidden, *folders]
        self._env = project.env | env
        self._outcomes = {}
        self._failure = f"the tests did not finish within {PATIENCE_S} s"
        self.start()

    def run(self):
        done = subprocess.run(self._command, env=self._env, capture_output=True, text=True, check=False)
        self._outcomes = {each["folder"]: each for each in map(json.loads, done.stdout.splitlines())}
        self._failure = done.stderr if done.returncode else ""

    @property
    def outcomes(self):
        """The exit code and the output of each folder's tests."""
        self.join(PATIENCE_S)
        assert not self._failure, self._failure
        return self._outcomes
