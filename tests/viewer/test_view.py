"""Tests of `ng view`: the server in a process of its own, its exports, and its errors."""

from __future__ import annotations

import re
import socket
from contextlib import closing

import httpx
import pytest

from nemo_gym.cli.main import main
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.lock import locked
from tests.each_case import each_case
from tests.viewer.small_run import write_record, write_run

pytestmark = pytest.mark.slow

ADDRESS = re.compile(r"http://\S+/\?token=\S+")


@pytest.fixture
def place(workplace):
    (workplace.folder / "results").mkdir()
    write_run(workplace.folder / "results")
    return workplace


def start(place):
    """Start a viewer and return it with a browser that has used its address."""
    command = place.start("ng_view", "--no-open")
    address = ADDRESS.search(command.wait_for("Ctrl-C ends the viewer"))[0]
    browser = httpx.Client(base_url=address.split("/?")[0], follow_redirects=True)
    assert browser.get(address).status_code == 200
    return command, browser


@pytest.mark.slow
def test_viewer_serves_until_interrupted(place):
    command, browser = start(place)
    with closing(browser):
        (run,) = browser.get("/api/runs").json()["runs"]
        assert (run["name"], run["scored"], run["failed"]) == ("small", 3, 1)
        first, second = ADDRESS.findall(command.wait_for("For another browser"))
        assert first != second
        assert httpx.get(first, follow_redirects=True).status_code == 403
        assert httpx.get(second, follow_redirects=False).status_code == 303
    finished = command.end()
    assert (finished.code, finished.err) == (0, "")


@pytest.mark.slow
def test_open_event_streams_end_with_the_viewer(place):
    results = place.folder / "results" / "small.jsonl"
    write_record(results)
    command, browser = start(place)
    with closing(browser), locked(RunFiles(results=results)):
        run = browser.get("/api/runs").json()["runs"][0]["id"]
        with browser.stream("GET", "/api/events", params={"run": run}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            finished = command.end()
            assert (finished.code, finished.err) == (0, "")
            # The stream ended in order.
            assert list(lines)[-1] == ""


@pytest.fixture
def view(tmp_path, monkeypatch, capsys):
    """Returns the exit code and the output of `ng view` in a folder with a run."""
    (tmp_path / "results").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.jsonl").write_text('{"word": 1}\n')
    write_run(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*words):
        try:
            code = main(list(words), "ng_view")
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    run.folder = tmp_path
    run.results = tmp_path / "results" / "small.jsonl"
    return run


def test_address_in_use_is_reported(view):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = view("--no-open", "--port", str(port))
    assert (code, out) == (1, "")
    assert err == (
        f"Error: the viewer cannot listen on 127.0.0.1, port {port} (Address already in use). Pass another --port, or "
        "leave out --port to use a free port.\n"
    )


def test_selection_is_written_as_raw_lines(view):
    words = ("--filter", "reward_min=0.5&sort=reward&column=subset", "--jsonl", "chosen.jsonl")
    assert view("results/small.jsonl", *words) == (0, "chosen.jsonl: 2 rollouts\n", "")
    first, _, third = view.results.read_text().splitlines()
    assert (view.folder / "chosen.jsonl").read_text().splitlines() == [third, first]
    exists = "Error: chosen.jsonl exists. Pass --overwrite to replace it, or choose another file.\n"
    assert view("results", *words) == (1, "", exists)
    assert view("results", *words, "--overwrite", "--limit", "1") == (0, "chosen.jsonl: 1 rollout\n", "")


def test_selection_includes_failed_rollouts(view):
    assert view("--filter", "failure=timeout", "--jsonl", "failed.jsonl")[0] == 0
    failures = view.results.with_name("small_failures.jsonl")
    assert (view.folder / "failed.jsonl").read_bytes() == failures.read_bytes()


def test_files_of_a_run_are_never_replaced(view):
    before = view.results.read_bytes()
    for flag in ("--jsonl", "--export"):
        for name in ("small.jsonl", "small_failures.jsonl", "small_materialized_inputs.jsonl", "small_run.json"):
            code, _, err = view(flag, f"results/{name}", "--overwrite", "--limit", "1")
            assert (code, err[-54:]) == (1, "this is a file of the run small. Choose another file.\n")
    assert view.results.read_bytes() == before


def test_export_prints_its_size(view):
    code, out, err = view("--export", "report.html", "--limit", "2")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"report\.html: \d\.\d MB, 2 rollouts of 4; --limit and --filter choose others\n", out)
    assert (view.folder / "report.html").read_text().startswith("<!doctype html>")


@each_case(
    ("words", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: this file or folder does not exist. Check the path."),
        (["resuls"], 1, "resuls: this file or folder does not exist. Did you mean 'results'?"),
        (
            ["results/small_failures.jsonl"],
            1,
            "results/small_failures.jsonl: this file belongs to the run of results/small.jsonl. Pass "
            "results/small.jsonl instead.",
        ),
        (["empty"], 1, "empty: no run is in this folder. A run is a file x.jsonl with one rollout per line"),
        (
            ["words.jsonl"],
            1,
            "words.jsonl: this is not a file of rollouts (no line is a rollout with a reward). A run",
        ),
        (["--export", "a.html", "--jsonl", "b.jsonl"], 2, "--export and --jsonl: pass only one of them."),
        (
            ["--limit", "3"],
            2,
            "--filter and --limit choose what --export or --jsonl writes. Pass --export or --jsonl, too.",
        ),
        (["--jsonl", "b.jsonl", "--filter", "outcom=failed"], 2, "'outcom' is not a filter. Did you mean 'outcome'?"),
        (["--jsonl", "b.jsonl", "--filter", "failed"], 2, "'failed' is not a filter. Did you mean 'failure'?"),
        (["--jsonl", "b.jsonl", "--filter", "sort=subjekt"], 2, "sort"),
        (["--host", "no.such.name.invalid"], 2, "--host no.such.name.invalid: the address is not known"),
        (["--port", "99999"], 2, "port: it must be less than or equal to 65535, but is 99999."),
    ],
)
def test_wrong_words_are_reported(view, words, code, message):
    ended, out, err = view("--no-open", *words)
    assert (ended, out) == (code, "")
    assert err.count("\n") == 1
    assert err.startswith(f"Error: {message}")
