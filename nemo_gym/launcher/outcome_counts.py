"""A pytest plugin that writes how many tests passed, failed and were skipped to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    # Not imported otherwise, because the command imports this module, too, and reports a missing pytest itself.
    import pytest

COUNTS_FILE = "NEMO_GYM_TEST_COUNTS"
"""The environment variable that names the file."""
OUTCOMES = {"passed": ("passed", "xpassed"), "failed": ("failed", "error"), "skipped": ("skipped", "xfailed")}
"""The categories of pytest's summary that each number includes."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the counts of this run."""
    stats = terminalreporter.stats
    counts = {name: sum(len(stats.get(each, ())) for each in included) for name, included in OUTCOMES.items()}
    Path(os.environ[COUNTS_FILE]).write_bytes(orjson.dumps(counts))
