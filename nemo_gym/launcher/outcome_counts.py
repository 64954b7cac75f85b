"""A pytest plugin that writes to a file how many tests passed, failed and were skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    # Import pytest only for type checking, because the command that reports a missing pytest imports this module.
    import pytest

COUNTS_FILE = "NEMO_GYM_TEST_COUNTS"
"""The environment variable with the path of the file to which the numbers of tests are written."""
OUTCOMES = {"passed": ("passed", "xpassed"), "failed": ("failed", "error"), "skipped": ("skipped", "xfailed")}
"""The categories of pytest's summary that count as passed, failed and skipped."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the numbers of passed, failed and skipped tests to a file at the end of a pytest run."""
    stats = terminalreporter.stats
    counts = {name: sum(len(stats.get(each, ())) for each in included) for name, included in OUTCOMES.items()}
    Path(os.environ[COUNTS_FILE]).write_bytes(orjson.dumps(counts))
