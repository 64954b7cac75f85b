"""Run every page of the documentation, as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources_servers.reasoning_gym.scoring import is_installed
from tests.conftest import Workplace
from tests.docs.pages import REPOSITORY, all_pages, read_page
from tests.docs.running import run_page


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_page_does_what_it_shows(path: Path, workplace: Workplace, request: pytest.FixtureRequest) -> None:
    page = read_page(path)
    if "reasoning_gym" in path.read_text("utf-8") and path.name != "README.md" and not is_installed():
        pytest.skip("reasoning-gym is not installed: it needs a C compiler")
    endpoint = request.getfixturevalue("endpoint") if "endpoint" in page.needs else ""
    run_page(page, workplace, endpoint=endpoint)
