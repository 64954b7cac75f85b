"""A change runs the slow tests, border suites and pages that it touches, and a few of the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, all_pages
from tests.selection import ALWAYS, BORDERS, KEPT, ONE_IN, PAGES, Change

CLUSTER = "tests/cluster/test_join.py::test_x"
SLOW = "tests/grading/test_x.py::test_x"
SLOW_OF_SERVER = "resources_servers/mcqa/tests/test_app.py::test_x"
PAGE = f"{PAGES}::test_page_does_what_it_shows[docs/a.md]"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("nemo_gym/launcher/local.py", "nemo_gym/grading/text.py", "resources_servers/mcqa/app.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("`nemo_gym.grading` and\n`ng_run --resources-server mcqa`\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


def runs(folder: Path, test: str, changed: str, stands_on: tuple[str, ...] = (), is_slow: bool = False) -> list[bool]:
    """Return whether a test runs after a change of a file, for as many commits as there are turns."""
    needed = list[bool]()
    for number in range(ONE_IN):
        since = git(folder, "rev-parse", "HEAD")
        (folder / changed).write_text(f"# {number}")
        commit(folder)
        needed.append(Change(since, folder).needs(test, stands_on, is_slow))
    return needed


@pytest.mark.parametrize(
    ("test", "changed"),
    [
        (CLUSTER, "nemo_gym/launcher/local.py"),
        (PAGE, "nemo_gym/grading/text.py"),
        (PAGE, "resources_servers/mcqa/app.py"),
        (PAGE, "docs/a.md"),
        (PAGE, "requirements.lock"),
        (CLUSTER, "requirements-dev.lock"),
        ("tests/web/test_app.py::test_x", "docs/b.md"),
    ],
)
def test_touched_tests_run_after_every_commit(repository, test, changed):
    assert runs(repository, test, changed) == [True] * ONE_IN


@pytest.mark.parametrize("test", [CLUSTER, PAGE, SLOW, SLOW_OF_SERVER])
def test_untouched_tests_run_once_in_a_round(repository, test):
    assert sorted(runs(repository, test, "nemo_gym/jsonl.py", is_slow=True)) == [False] * (ONE_IN - 1) + [True]


@pytest.mark.parametrize(
    ("test", "changed"),
    [
        (SLOW, "nemo_gym/grading/text.py"),
        (SLOW_OF_SERVER, "resources_servers/mcqa/app.py"),
        ("tests/security/test_x.py::test_x", "docs/a.md"),
    ],
)
def test_touched_or_kept_slow_tests_run_after_every_commit(repository, test, changed):
    assert runs(repository, test, changed, is_slow=True) == [True] * ONE_IN


@pytest.mark.parametrize(
    ("changed", "turns"), [("resources_servers/mcqa/app.py", ONE_IN), ("nemo_gym/grading/text.py", 1)]
)
def test_marked_tests_run_if_what_they_stand_on_changes(repository, changed, turns):
    needed = runs(repository, "tests/test_a.py::test_x[mcqa]", changed, ("resources_servers/mcqa/", "nemo_gym/data/"))
    assert sum(needed) == turns


def test_uncommitted_change_counts(repository):
    (repository / "nemo_gym/launcher/local.py").write_text("changed")
    assert Change("HEAD", repository).needs(CLUSTER)


def test_suites_and_what_they_stand_on_exist():
    assert [path for path in KEPT if not (REPOSITORY / path).exists()] == []
    for suite, needed in BORDERS.items():
        assert [path for path in (suite, *needed) if not (REPOSITORY / path).exists()] == []


def test_first_page_always_runs():
    assert set(ALWAYS) <= {str(page.relative_to(REPOSITORY)) for page in all_pages()}
