"""Every page can be read, and says why a block is not run."""

from __future__ import annotations

from collections import Counter

from tests.docs.commands import commands_of
from tests.docs.pages import COMMANDS, all_pages, read_page

REASONS = {
    "installs packages",
    "needs a C compiler",
    "needs a GPU",
    "needs a cluster",
    "needs a container engine",
    "needs a model",
    "needs three machines",
    "needs the Hugging Face Hub",
    "runs for minutes",
    "shows one part of a program",
}
"""Why a block may not be run."""
MOST_NOT_RUN = 0.3
"""The share of commands and Python blocks that may not be run."""


def test_every_block_can_be_read() -> None:
    pages = [read_page(path) for path in all_pages()]
    assert any(page.blocks for page in pages)
    for page in pages:
        for block in page.blocks:
            if block.language in COMMANDS:
                assert commands_of(page, block)


def test_skipped_blocks_have_a_known_reason() -> None:
    blocks = [block for path in all_pages() for block in read_page(path).blocks]
    runnable = [block for block in blocks if block.language in (*COMMANDS, "python") and not block.file]
    reasons = Counter(block.not_run for block in runnable if block.not_run)
    assert set(reasons) <= REASONS, reasons
    assert reasons.total() <= MOST_NOT_RUN * len(runnable), reasons
