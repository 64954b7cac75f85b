"""Run a program in the Python of a framework, with modules from the documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "training"
LIMIT_S = 1700.0
"""A program imports torch and a framework, which other tests can stretch to minutes."""


def block_of(page: str, name: str) -> str:
    """Return a module that a page defines."""
    found = re.search(rf"```\w+ file={re.escape(name)}\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)
    assert found is not None, f"{page} does not define {name}"
    return found[1]


@cache
def python_with(framework: str, *packages: str) -> str:
    """Return the first interpreter that has these packages: this one, $NEMO_GYM_<NAME>_PYTHON or that of `make`.

    If none has them, skip the test.
    """
    variable = f"NEMO_GYM_{framework.upper()}_PYTHON"
    # Importing the packages would take up to half a minute.
    has_them = f"from importlib.util import find_spec\nraise SystemExit(not all(map(find_spec, {packages!r})))"
    candidates = [sys.executable, os.environ.get(variable), str(REPOSITORY / f".venv-{framework}/bin/python")]
    for candidate in filter(None, candidates):
        if Path(candidate).is_file():
            tried = subprocess.run([candidate, "-c", has_them], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    pytest.skip(f"no Python with {', '.join(packages)}: run `make {framework}`, or set {variable}")


def report_of(
    python: str, program: Path, *words: str, given: object, folder: Path, env: Mapping[str, str] | None = None
) -> Any:
    """Run a program with `given` as JSON on its input, and return the JSON of its last line of output."""
    finished = subprocess.run(
        [python, "-W", "ignore", program, *words], cwd=folder, input=json.dumps(given), capture_output=True, text=True,
        env={**(os.environ if env is None else env), "HF_HUB_OFFLINE": "1"}, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, f"{finished.stdout[-3000:]}\n{finished.stderr[-9000:]}"
    return json.loads(finished.stdout.splitlines()[-1])
