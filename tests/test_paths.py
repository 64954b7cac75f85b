"""Search paths: extra roots, the working folder, the installation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_gym import paths

pytestmark = pytest.mark.bare


@pytest.fixture
def extra(tmp_path, monkeypatch) -> list[Path]:
    """Create two extra roots and a working folder, all empty."""
    roots = [tmp_path / "first", tmp_path / "second"]
    for folder in (*roots, tmp_path / "work"):
        folder.mkdir()
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, os.pathsep.join(map(str, roots)))
    monkeypatch.chdir(tmp_path / "work")
    return roots


def write(folder: Path, name: str = "a.yaml") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("x")
    return folder / name


def test_home_is_expanded_in_settings_with_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    kinds = [
        (Path, "~/x"),
        (Path | None, "~"),
        (list[Path], ["~/x", "y"]),
        (dict[str, Path], {"a": "~/x"}),
        (str, "~/x"),
    ]
    found = [paths.expand_home(value, kind) for kind, value in kinds]
    assert found == ["/home/ada/x", "/home/ada", ["/home/ada/x", "y"], {"a": "/home/ada/x"}, "~/x"]
    assert paths.expand_home(None, Path | None) is None


def test_search_roots_have_a_fixed_order(extra):
    assert paths.search_roots() == [*extra, Path.cwd(), paths.INSTALL_ROOT]


def test_without_extra_roots_there_are_two(monkeypatch, tmp_path):
    monkeypatch.delenv(paths.EXTRA_ROOTS_ENV_VAR, raising=False)
    monkeypatch.chdir(tmp_path)
    assert paths.search_roots() == [tmp_path.resolve(), paths.INSTALL_ROOT]


def test_server_process_searches_its_folder_then_project(extra, monkeypatch, tmp_path):
    project = [tmp_path / "started_here", tmp_path / "server_folder"]
    monkeypatch.setenv(paths.PROJECT_ROOTS_ENV_VAR, os.pathsep.join(map(str, project)))
    assert paths.search_roots() == [*extra, Path.cwd(), *project, paths.INSTALL_ROOT]


def test_duplicate_root_is_searched_once(extra, monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to(extra[0])
    named = [str(extra[0]), "", str(tmp_path / "link"), str(extra[0] / ".." / "first"), "."]
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, os.pathsep.join(named))
    assert paths.search_roots() == [extra[0], Path.cwd(), paths.INSTALL_ROOT]


def test_relative_roots_survive_a_change_of_folder(extra, monkeypatch, tmp_path):
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, os.pathsep.join(["../first", "."]))
    started_in = Path.cwd()
    for name, value in paths.roots_from_here(tmp_path / "server_folder").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "second")
    assert paths.search_roots() == [
        extra[0], started_in, tmp_path / "second", tmp_path / "server_folder", paths.INSTALL_ROOT,
    ]  # fmt: skip


def test_a_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, "~")
    assert paths.search_roots()[0] == tmp_path.resolve()
    assert paths.find("~/a.yaml") is None
    write(tmp_path)
    assert paths.find("~/a.yaml") == tmp_path / "a.yaml"


def test_first_root_with_the_file_wins(extra):
    assert paths.find("a.yaml") is None
    in_work = write(Path.cwd())
    assert paths.find("a.yaml") == in_work
    in_second = write(extra[1])
    assert paths.find("a.yaml") == in_second
    in_first = write(extra[0])
    assert paths.find("a.yaml") == in_first


def test_built_in_servers_are_found_from_anywhere(extra):
    assert paths.find("nemo_gym/paths.py") == Path(paths.__file__).resolve()


def test_links_in_a_loop_are_no_error(extra):
    extra[0].rmdir()
    extra[0].symlink_to(extra[0])
    assert extra[0] in paths.search_roots()
    assert paths.find(write(Path.cwd()).name) == Path.cwd() / "a.yaml"


def test_rejected_candidates_are_skipped(extra):
    (extra[0] / "thing").mkdir()
    file = write(extra[1], "thing")
    assert paths.find("thing") == extra[0] / "thing"
    assert paths.find("thing", Path.is_file) == file
    assert paths.find("thing", lambda path: False) is None


def test_absolute_path_is_not_searched(extra, tmp_path):
    file = write(tmp_path, "elsewhere/a.yaml")
    write(extra[0])
    assert paths.find(file) == file
    assert paths.find(tmp_path / "a.yaml") is None


def test_results_of_a_checkout_stay_in_it(extra):
    assert paths.working_dir() == paths.INSTALL_ROOT
    assert (paths.working_dir() / "pyproject.toml").is_file()
