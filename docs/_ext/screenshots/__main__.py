"""Take the screenshots of the viewer: `PYTHONPATH=docs/_ext python -m screenshots docs/images`, in four minutes.

They need Chromium. Numbers and times differ from run to run, so no test compares the files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from screenshots.runs import NG, RUNNING, collected

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SIZE = {"width": 1280, "height": 800}
SCALE = 1.5
PATIENCE_MS = 30_000
LIVE_FOR_MS = 45_000
"""How long the running collection is watched, so that its curves have some length."""


class Shot(NamedTuple):
    """One page of the viewer."""

    name: str
    address: str
    ready: str
    """A text that shows that the page is complete."""
    act: Callable[[Page], object] = lambda page: None
    """What to do before the picture is taken."""
    height: int = SIZE["height"]
    schemes: tuple[str, ...] = ("light",)


def _choose_runs(page: Page) -> None:
    for box in page.get_by_role("checkbox").all()[1:3]:
        box.check()


SHOTS = (
    Shot("live", f"/run/{{{RUNNING}}}/live", "Running for longest", lambda page: page.wait_for_timeout(LIVE_FOR_MS)),
    Shot("runs", "/runs", "step_000", _choose_runs, height=360),
    Shot("overview", "/run/{step_200}/overview", "Tasks and repeats", schemes=("light", "dark")),
    Shot("rollouts", "/run/{step_200}/rollouts?sort=seconds&order=desc", "rollouts"),
    Shot("rollout", "/run/{step_200}/rollout/4/{errand}", "Verification", schemes=("light", "dark")),
    Shot("judge", "/run/{step_200}/rollout/14/{reply}", "Verification"),
    Shot("tokens", "/run/{step_200}/rollout/4/{errand}?tab=tokens", "mean log-probability", lambda page: (
        page.get_by_label("Go to").select_option(index=2)
    ), height=600),
    Shot("task", "/run/{step_200}/task/4", "first difference", lambda page: (
        page.get_by_role("button", name="Go to the first difference").click()
    )),
    Shot("compare", "/compare?run={step_000}&run={step_200}&run={step_400}", "Tasks by difference"),
)  # fmt: skip


@contextmanager
def viewer(folder: Path) -> Iterator[str]:
    """Start `ng view` in a folder and yield its address."""
    command = [NG, "view", "results", "--no-open"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            process.terminate()


def take(browser: Browser, address: str, images: Path) -> None:
    """Take all screenshots with one connection to the viewer."""
    context = browser.new_context(viewport=SIZE, device_scale_factor=SCALE)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    expect(page.get_by_text(RUNNING).first).to_be_visible()
    names = _names(page)
    _write_note(page, names)
    for shot in SHOTS:
        page.goto(f"{page.url.split('#')[0]}#{shot.address.format(**names)}")
        expect(page.get_by_text(shot.ready).first).to_be_visible()
        # A list under the pointer does not change.
        page.mouse.move(0, 0)
        shot.act(page)
        for scheme in shot.schemes:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            # Charts are drawn again, and images and maths arrive late.
            page.wait_for_timeout(1_500)
            picture = page.screenshot(clip={"x": 0, "y": 0, "width": SIZE["width"], "height": shot.height})
            _save(picture, images / f"viewer_{shot.name}{'_dark' if scheme == 'dark' else ''}.webp")
        page.emulate_media(color_scheme="light")


def _names(page: Page) -> dict[str, str]:
    """Return the ids of the runs by their names, and the repeats with a mistake."""
    names = {run["name"]: run["id"] for run in _api(page, "runs")["runs"]}
    for name, task in {"errand": 4, "reply": 14}.items():
        rows = _api(page, f"rollouts?run={names['step_200']}&task={task}&outcome=scored&reward_max=0.9")["rows"]
        names[name] = str(rows[0]["repeat"])
    return names


def _api(page: Page, path: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = page.evaluate(f"fetch('/api/{path}').then(answer => answer.json())")
    return found


def _write_note(page: Page, names: dict[str, str]) -> None:
    page.goto(f"{page.url.split('#')[0]}#/run/{names['step_200']}/rollout/4/{names['errand']}")
    page.get_by_role("button", name="Star").first.click()
    tag = page.get_by_placeholder("Add a tag")
    tag.fill("forgets the last step")
    tag.press("Enter")
    page.get_by_placeholder("Comment").fill("Never deletes the second email, but reports it as done.")
    page.wait_for_timeout(2_000)


def _save(png: bytes, path: Path) -> None:
    Image.open(BytesIO(png)).convert("RGB").save(path, lossless=True, quality=100, method=6)


def main(images: Path) -> None:
    with (
        TemporaryDirectory(prefix="viewer_") as name,
        collected(Path(name)),
        viewer(Path(name)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        take(browser, address, images)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
