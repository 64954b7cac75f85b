"""Run every page of the documentation, as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources_servers.reasoning_gym.scoring import is_installed
from tests.conftest import Workplace
from tests.docs.pages import COMMANDS, REPOSITORY, Block, all_pages, read_page
from tests.docs.running import run_page

pytestmark = pytest.mark.slow


def is_run(block: Block) -> bool:
    return block.language in (*COMMANDS, "python") and not block.not_run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_page_does_what_it_shows(path: Path, workplace: Workplace, request: pytest.FixtureRequest) -> None:
    page = read_page(path)
    if not is_installed() and any("reasoning_gym" in block.text for block in page.blocks if is_run(block)):
        pytest.skip("reasoning-gym is not installed: it needs a C compiler")
    endpoint = request.getfixturevalue("endpoint") if "endpoint" in page.needs else ""
    run_page(page, workplace, endpoint=endpoint)
