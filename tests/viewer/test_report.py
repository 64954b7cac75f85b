"""Tests of the file that `ng view --export` writes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import shutil

import orjson
import pytest

from nemo_gym.errors import UsageError
from nemo_gym.viewer import rollout
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.report import write_report
from nemo_gym.viewer.selection import Selection
from tests.viewer.index_rows import scored, write
from tests.viewer.small_run import HOSTILE, PIXEL, write_run

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Exported:
    """A report and the data in it."""

    def __init__(self, folder, *runs, text="", limit=None):
        self.path = folder / "report.html"
        library = Library([write_run(folder, name) for name in runs or ["small"]], cache=folder / "cache")
        self.written = write_report(library, Selection.parse(text, limit), self.path)
        library.close()
        self.page = self.path.read_text("utf-8")
        packed = re.search(r'<script type="application/gzip\+base64" id="report">([^<]*)</script>', self.page)[1]
        self.data = orjson.loads(gzip.decompress(base64.b64decode(packed)))
        self.run = self.data["runs"][0]["id"]


def test_report_contains_the_whole_run(tmp_path):
    report = Exported(tmp_path)
    keys = [(row["task"], row["repeat"]) for row in report.data["rows"][report.run]]
    assert keys == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each["outcome"] for each in report.data["rollouts"][report.run]] == ["scored"] * 3 + ["failed"]
    assert report.data["facets"][report.run]["agents"] == [{"value": "counter_agent", "count": 4}]
    assert report.data["overviews"][report.run]["counts"]["scored"] == 3
    assert report.data["selection"] == {"text": "", "total": 4, "included": 4}
    assert report.written == (len(report.page.encode()), 4, 4, [])


def test_filter_order_and_limit_choose_rollouts(tmp_path):
    report = Exported(tmp_path, text="outcome=scored&sort=reward&order=desc", limit=2)
    assert [row["reward"] for row in report.data["rows"][report.run]] == [1.0, 0.5]
    assert [each["reward"] for each in report.data["rollouts"][report.run]] == [1.0, 0.5]
    assert report.data["selection"] == {"text": "outcome=scored", "total": 3, "included": 2}


def test_selection_rejects_what_is_not_a_filter():
    for text in ("outcom=failed", "outcome=lost", "failed", "order=random", "reward_min=x"):
        with pytest.raises(UsageError):
            Selection.parse(text)


def test_record_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout, "LARGEST_RECORD", 2_000)
    rows = [scored(task, text="x" * 2_000 * task) for task in range(2)]
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    for each in rows:
        each["response"]["output"] = [each["response"]["output"][-1] | tokens]
    library = Library([write(tmp_path / "x.jsonl", *rows)], cache=tmp_path / "cache")
    written = write_report(library, Selection.parse(""), tmp_path / "report.html")
    library.close()
    assert (written.included, len(written.problems)) == (2, 1)
    assert "x.jsonl:2: the record has" in written.problems[0]


def test_images_are_in_the_file(tmp_path):
    report = Exported(tmp_path)
    parts = report.data["rollouts"][report.run][2]["items"][0]["parts"]
    assert [part["source"] for part in parts if part["kind"] == "image"] == [PIXEL]


def test_several_runs_are_compared_with_the_first(tmp_path):
    report = Exported(tmp_path, "second", "first")
    assert [run["name"] for run in report.data["runs"]] == ["second", "first"]
    assert report.data["comparison"]["runs"] == [run["id"] for run in report.data["runs"]]
    assert report.data["comparison"]["shared"] == 2


def test_report_may_load_nothing_and_runs_only_its_program(tmp_path):
    page = Exported(tmp_path).page
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert not re.search("unsafe|https?:|connect-src", policy)
    program = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)[1]
    styles = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    for text in (program, styles):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    # Nothing else is loaded, and no text of a model is outside the compressed data.
    assert not re.search(r'\b(src|href)="(?!data:)', page.replace(program, ""))
    assert HOSTILE not in page
    assert (page.count("<script"), page.count("</script>")) == (2, 2)
    # Browsers look for the encoding in the first 1024 bytes only.
    assert page.index('charset="utf-8"') < 1000


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_report_opens_from_disk_without_network(tmp_path):
    from playwright.sync_api import sync_playwright

    report = Exported(tmp_path)
    said, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_context(offline=True).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{report.path.as_uri()}#/run/{report.run}/rollout/0/1")
        page.get_by_text("document.title='taken over'").wait_for()
        title = page.title()
        page.goto(f"{report.path.as_uri()}#/run/{report.run}/rollout/1/0")
        page.get_by_text("A red dot.").wait_for()
        page.wait_for_function("document.querySelector('img')?.naturalWidth === 1")
        browser.close()
    assert "taken over" not in title
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []
    assert said == []
