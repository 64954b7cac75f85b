"""The times of rollouts, from the ledger of their run."""

from __future__ import annotations

from pathlib import Path

import orjson

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.ledger import Ended, as_json
from nemo_gym.rollouts.outcome import Outcome
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.overview import overview_of
from tests.viewer.index_rows import scored, write

BEGAN_AT = 1.7e9
TASKS = 10


def ledger_of(results: Path) -> bytes:
    """Return the ledger of rollouts that each take four seconds and end one second after the one before."""
    lines, offset = [], 0
    for task, raw in enumerate(results.read_bytes().splitlines()):
        event = Ended(
            BEGAN_AT + 4 + task, task, 0, 0, Outcome.SCORED, reward=1.0, seconds=4.0,
            phases={"model": 3.0, "tools": 0.5}, file="results", offset=offset, bytes=len(raw), digest="",
        )  # fmt: skip
        lines.append(orjson.dumps(as_json(event)))
        offset += len(raw) + 1
    return b"\n".join(lines) + b"\n"


def library_of(tmp_path: Path, ledger: bytes) -> Library:
    files = RunFiles(results=write(tmp_path / "x.jsonl", *(scored(task) for task in range(TASKS))))
    files.folder.mkdir()
    files.ledger.write_bytes(ledger or ledger_of(files.results))
    return Library([files.results], tmp_path / "cache")


def test_progress_follows_the_ledger(tmp_path: Path) -> None:
    library = library_of(tmp_path, b"")
    library.finish()
    (run,) = library.runs()
    found, filtered = overview_of(run, Filter()), overview_of(run, Filter(task=(1, 2)))
    page = run.index.select(Filter(), "seconds")
    library.close()
    progress, some = found["progress"], filtered["progress"]
    assert isinstance(progress, dict)
    assert isinstance(some, dict)
    assert (progress["at_s"][0], progress["at_s"][-1], progress["finished"][-1]) == (0.0, 13.0, TASKS)
    assert (max(progress["in_flight"]), progress["in_flight"][-1]) == (4, 0)
    assert (some["at_s"][-1], some["finished"][-1]) == (5.0, 2)
    assert {row["seconds"] for row in page.rows} == {4.0}
    distributions = found["distributions"]
    assert isinstance(distributions, list)
    means = {each["name"]: each["mean"] for each in distributions}
    assert (means["seconds"], means["model_seconds"], means["tool_seconds"]) == (4.0, 3.0, 0.5)


def test_events_wait_for_their_rows(tmp_path: Path) -> None:
    files = RunFiles(results=write(tmp_path / "x.jsonl", *(scored(task) for task in range(TASKS))))
    files.folder.mkdir()
    files.ledger.write_bytes(ledger_of(files.results))
    whole = files.results.read_bytes()
    files.results.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    finished = []
    for content in (files.results.read_bytes(), whole):
        files.results.write_bytes(content)
        # The second library continues the index of the first one. One library might repeat its earlier answer.
        library = Library([files.results], tmp_path / "cache")
        library.finish()
        progress = overview_of(library.runs()[0], Filter())["progress"]
        library.close()
        assert isinstance(progress, dict)
        finished.append(progress["finished"][-1])
    assert finished == [4, TASKS]


def test_strange_events_are_skipped(tmp_path: Path) -> None:
    strange = b'{"event":"ended"}\n{"event":"ended","file":7}\n[]\n{"event":"ended","file":"results","offset":"a"}\n'
    library = library_of(tmp_path, strange)
    library.finish()
    (run,) = library.runs()
    found = overview_of(run, Filter())
    library.close()
    assert isinstance(found["counts"], dict)
    assert found["counts"]["scored"] == TASKS
