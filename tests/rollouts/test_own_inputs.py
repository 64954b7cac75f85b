"""Tests that a run finds the input that was meant, and never writes a file that it reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_gym.cli.main import main
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.tasks import find_input
from tests.each_case import each_case

CONTENT = '{"responses_create_params": {"input": "Hi"}}\n'


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Create a working folder, and an extra root next to it."""
    here, extra = tmp_path / "here", tmp_path / "extra"
    here.mkdir()
    extra.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(extra))
    return here, extra


def test_input_of_the_working_folder_comes_first(folders):
    here, extra = folders
    notes = []
    (extra / "rows.jsonl").write_text(CONTENT)
    assert find_input(Path("rows.jsonl"), notes.append) == extra / "rows.jsonl"
    assert not notes
    (here / "rows.jsonl").write_text(CONTENT)
    assert find_input(Path("rows.jsonl"), notes.append).samefile(here / "rows.jsonl")
    assert notes == [f"note: input_jsonl_fpath: using {here / 'rows.jsonl'}; also found: {extra / 'rows.jsonl'}."]


def test_extra_root_with_the_same_file_is_not_noted(folders):
    here, extra = folders
    (here / "rows.jsonl").write_text(CONTENT)
    os.link(here / "rows.jsonl", extra / "rows.jsonl")
    notes = []
    find_input(Path("rows.jsonl"), notes.append)
    assert not notes


WRITTEN = (
    "w.jsonl", "w_materialized_inputs.jsonl", ".w_materialized_inputs.jsonl.staged", "w_failures.jsonl", "w_run.json",
    "w_run/ledger.jsonl", "w_run/output.log", "w_run/logs/server.log", "w_aggregate_metrics.json", ".w.jsonl.lock",
)  # fmt: skip


def as_is(path, folder):
    return path


def spelled_otherwise(path, folder):
    return folder / "sub" / ".." / path.relative_to(folder)


def symlink(path, folder):
    (folder / "link.jsonl").symlink_to(path)
    return folder / "link.jsonl"


def hard_link(path, folder):
    os.link(path, folder / "link.jsonl")
    return folder / "link.jsonl"


def relative(path, folder):
    return path.relative_to(folder)


@each_case("name", WRITTEN)
@pytest.mark.parametrize("spell", [as_is, relative, spelled_otherwise, symlink, hard_link])
@pytest.mark.parametrize("words", [(), ("--overwrite",), ("--resume",), ("--detach", "--overwrite")])
def test_input_that_the_run_would_write_is_rejected(name, spell, words, folders, capsys):
    here, _ = folders
    (here / "sub").mkdir(exist_ok=True)
    path = here / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (here / "link.jsonl").unlink(missing_ok=True)
    path.write_text(CONTENT)
    try:
        given = spell(path, here)
        before = sorted(here.rglob("*"))
        code = main(["--input", str(given), "--output", "w.jsonl", *words], "ng_collect_rollouts")
        assert code == 1
        assert f"{here / given}: this run reads the file, but would write" in capsys.readouterr().err
        assert path.read_text() == CONTENT
        assert sorted(here.rglob("*")) == before
    finally:
        path.unlink()


def test_output_that_leads_to_the_input_is_rejected(folders, capsys):
    here, _ = folders
    (here / "rows.jsonl").write_text(CONTENT)
    (here / "w.jsonl").symlink_to("rows.jsonl")
    assert main(["--input", "rows.jsonl", "--output", "w.jsonl", "--overwrite"], "ng_collect_rollouts") == 1
    assert "this run reads the file" in capsys.readouterr().err
    assert (here / "rows.jsonl").read_text() == CONTENT


def test_files_with_other_names_are_accepted(folders):
    here, _ = folders
    for name in ("w_materialized_inputs.jsonl", "w2.jsonl"):
        (here / name).write_text(CONTENT)
    RunFiles(results=here / "w2.jsonl").check_not_read([here / "w_materialized_inputs.jsonl", here / "missing"])
