"""A real viewer of real results, and windows of a browser that are watched."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import WarmCommands, Workplace
from tests.viewer.browser import browser as started_browser
from tests.viewer.browser import needs_browser
from tests.viewer.pages.collected import collect_all
from tests.viewer.pages.site import Site
from tests.viewer.pages.watched import Watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

OPEN_WITHIN_MS = 60_000
"""The timeout for what takes a second on an idle machine."""
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they are slow, and they need a browser."""
    has_playwright = find_spec("playwright") is not None
    needs_playwright = pytest.mark.skipif(not has_playwright, reason="the Python package playwright is not installed")
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark in (pytest.mark.slow, needs_browser, needs_playwright):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def collected(
    tmp_path_factory: pytest.TempPathFactory,
    warm_commands: WarmCommands,
    run_endpoint: Callable[[], AbstractContextManager[str]],
) -> Path:
    """The results of real collections, made once for all processes of the tests. Copy what a test changes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "collected"
    with (shared / "collected.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "is_complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            for name in ("home", "runtime"):
                (folder / name).mkdir(parents=True)
            collect_all(Workplace(folder / "home", folder / "runtime", warm_commands), run_endpoint())
            (folder / "is_complete").touch()
    return folder / "home" / "results"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: while it is open, asynchronous tests of other modules do not work.
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def open_site(shared_workplace: Workplace, browser: Browser) -> Iterator[Callable[[Path], Site]]:
    """Return a function that starts a viewer of a folder."""
    shared_workplace.env["XDG_CACHE_HOME"] = str(shared_workplace.folder / "cache")
    opened: list[Site] = []

    def open_site(folder: Path) -> Site:
        opened.append(Site(shared_workplace, browser, folder))
        return opened[-1]

    yield open_site
    for site in opened:
        site.end()


@pytest.fixture(scope="module")
def site(open_site: Callable[[Path], Site], shared_workplace: Workplace, collected: Path) -> Site:
    """A viewer of the collected results. The notes that a module writes are its own."""
    return open_site(shutil.copytree(collected, shared_workplace.folder / "results"))


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a window. When the test ends, nothing forbidden may have happened in any."""
    contexts: list[BrowserContext] = []
    watches: list[Watch] = []

    def open_page(site: Site, *, width: int = 1280, scripts: tuple[Path, ...] = (), **options: Any) -> Page:
        size = {"width": width, "height": 800}
        context = browser.new_context(storage_state=site.session, viewport=size, accept_downloads=True, **options)
        contexts.append(context)
        context.set_default_timeout(OPEN_WITHIN_MS)
        for script in scripts:
            context.add_init_script(path=script)
        watches.append(Watch(context, site.origin))
        page = context.new_page()
        page.watch = watches[-1]  # type: ignore[attr-defined]
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [complaint for watch in watches for complaint in watch.complaints] == []


@pytest.fixture
def page(site: Site, open_page: Callable[..., Page]) -> Page:
    """A window, 1280 pixels wide."""
    return open_page(site)


@pytest.fixture(scope="session", autouse=True)
def patient_expectations() -> None:
    """Let expectations wait for a busy machine."""
    if find_spec("playwright") is None:
        return
    from playwright.sync_api import expect

    expect.set_options(timeout=OPEN_WITHIN_MS)
