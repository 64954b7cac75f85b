"""Slow tests, border suites and pages run in the order in which a change needs them, as many as fit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, all_pages
from tests.selection import ALWAYS, BORDERS, KEPT, PAGES, Change, Part, Rank, part_of_test

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


def changed(folder: Path, path: str) -> Change:
    """Return the last change: that of one file."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("# changed")
    commit(folder)
    return Change("HEAD~1", folder)


def part(test: str, stands_on: tuple[str, ...] = (), is_slow: bool = True) -> Part:
    found = part_of_test(test, stands_on, is_slow)
    assert found
    return found


@pytest.mark.parametrize(
    ("test", "path", "rank"),
    [
        (CLUSTER, "nemo_gym/launcher/local.py", Rank.TOUCHED),
        (CLUSTER, "nemo_gym/grading/text.py", Rank.UNTOUCHED),
        (CLUSTER, "requirements-dev.lock", Rank.TOUCHED),
        (PAGE, "nemo_gym/grading/text.py", Rank.TOUCHED),
        (PAGE, "resources_servers/mcqa/app.py", Rank.TOUCHED),
        (PAGE, "nemo_gym/launcher/local.py", Rank.UNTOUCHED),
        (PAGE, "docs/a.md", Rank.CHANGED),
        (PAGE, "requirements.lock", Rank.TOUCHED),
        (SLOW, "nemo_gym/grading/text.py", Rank.TOUCHED),
        (SLOW, "resources_servers/mcqa/app.py", Rank.UNTOUCHED),
        (SLOW, "tests/grading/test_x.py", Rank.CHANGED),
        (SLOW_OF_SERVER, "resources_servers/mcqa/app.py", Rank.TOUCHED),
        ("tests/security/test_x.py::test_x", "docs/a.md", Rank.KEPT),
    ],
)
def test_rank_says_how_much_a_change_needs_a_test(repository, test, path, rank):
    assert changed(repository, path).rank(part(test)) == rank


@pytest.mark.parametrize(
    ("path", "rank"),
    [("resources_servers/mcqa/app.py", Rank.TOUCHED), ("nemo_gym/grading/text.py", Rank.UNTOUCHED)],
)
def test_marked_tests_depend_on_what_they_stand_on(repository, path, rank):
    marked = part("tests/rollouts/test_a.py::test_x[mcqa]", ("resources_servers/mcqa/", "nemo_gym/data/"))
    assert changed(repository, path).rank(marked) == rank


@pytest.mark.parametrize(
    "test", ["tests/web/test_app.py::test_x", f"{PAGES}::test_page_does_what_it_shows[README.md]"]
)
def test_fast_tests_and_the_first_page_always_run(test):
    assert part_of_test(test) is None


def test_what_a_change_needs_comes_first(repository):
    change = changed(repository, "nemo_gym/grading/text.py")
    kept, touched, untouched = part("tests/faults/test_x.py::test_x"), part(SLOW), part(CLUSTER)
    seconds = {untouched: 10.0, touched: 10.0, kept: 10.0}
    assert change.chosen(seconds, 30) == {kept, touched, untouched}
    assert change.chosen(seconds, 29) == {kept, touched}
    assert change.chosen(seconds, 19) == {kept}
    assert change.chosen(seconds, 5) == {kept}, "the first one runs however long it takes"
    assert change.chosen({**seconds, touched: 25.0}, 20) == {kept, untouched}, (
        "a short one fills what a long one leaves"
    )


def test_commits_in_a_row_run_every_file(repository):
    seconds = {part(f"tests/grading/test_{name}.py::test_x"): 1.0 for name in "abcdefghij"}
    chosen = []
    for _ in range(12):
        commit(repository)
        assert Change("HEAD", repository).chosen(seconds, 3) == Change("HEAD", repository).chosen(seconds, 3)
        chosen.append(Change("HEAD", repository).chosen(seconds, 3))
    assert {len(some) for some in chosen} == {3}
    assert set.union(*chosen) == seconds.keys()


def test_uncommitted_change_counts(repository):
    (repository / "nemo_gym/launcher/local.py").write_text("changed")
    assert Change("HEAD", repository).rank(part(CLUSTER)) == Rank.TOUCHED


def test_suites_and_what_they_stand_on_exist():
    assert [path for path in KEPT if not (REPOSITORY / path).exists()] == []
    for suite, needed in BORDERS.items():
        assert [path for path in (suite, *needed) if not (REPOSITORY / path).exists()] == []


def test_first_page_always_runs():
    assert set(ALWAYS) <= {str(page.relative_to(REPOSITORY)) for page in all_pages()}
