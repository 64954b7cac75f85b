"""Tests of the viewer's application: its errors, its live pages, and the files that it must not read."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import quote

import orjson
import pytest
from starlette.testclient import TestClient

from nemo_gym.errors import UsageError
from nemo_gym.jsonl import read_rows, write_rows
from nemo_gym.rollouts.control.calling import NotListening, StartingOrEnding
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.lock import locked
from nemo_gym.viewer import live
from nemo_gym.viewer.access import Access
from nemo_gym.viewer.app import create_app
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.live import MOST_STREAMS
from tests.viewer.small_run import write_record, write_run

SECRET = "the words of another file"
STATUS = {"state": "paused", "planned": 4, "scored": 3, "failed": {"timeout": 1}, "head_server": None}


class Collection:
    """Answers as a collection that ends after a number of status requests."""

    def __init__(self, replies=0):
        self.replies = replies
        self.asked = []

    def __call__(self, results, verb, /, **arguments):
        self.asked.append((results.name, verb, arguments))
        if verb == "drain":
            raise UsageError("small.jsonl: it is not collecting.")
        if verb == "status":
            self.replies -= 1
            if self.replies < 0:
                raise NotListening("no collection is running")
            return dict(STATUS)
        return {"changed": True}


class Viewer:
    """A browser that is connected to a viewer of a folder."""

    def __init__(self, folder, collection):
        self.library = Library([folder], cache=folder.parent / "cache")
        # The server waits only a second for the index.
        self.library.finish()
        access = Access("127.0.0.1", 80, on_used=lambda address: None)
        self.app = create_app(self.library, access, control=collection)
        self.browser = TestClient(self.app, base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"})
        self.browser.get(access.address)
        self.run = self.browser.get("/api/runs").json()["runs"][0]["id"]

    def get(self, address, **parameters):
        return self.browser.get(address, params=parameters)

    def ask(self, verb, **arguments):
        return self.browser.post("/api/control", json={"run": self.run, "verb": verb, **arguments})

    def events(self):
        """Return the events of the run until the stream ends."""
        reply = self.get("/api/events", run=self.run)
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [part.split("\n") for part in reply.text.strip().split("\n\n")]
        return [(name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))) for name, data in lines]


@pytest.fixture
def open_viewer(tmp_path):
    opened = []

    def open_folder(collection, folder="results"):
        (tmp_path / folder).mkdir(exist_ok=True)
        write_run(tmp_path / folder)
        opened.append(Viewer(tmp_path / folder, collection))
        return opened[-1]

    yield open_folder
    for viewer in opened:
        viewer.library.close()


def test_page_and_its_program_are_served(open_viewer):
    viewer = open_viewer(Collection())
    assert '<div id="app">' in viewer.get("/").text
    assert viewer.get("/app.js").headers["content-type"].startswith("text/javascript")


def test_errors_are_one_sentence(open_viewer):
    viewer = open_viewer(Collection())
    replies = [
        (viewer.get("/api/nothing"), 404),
        (viewer.get("/api/rollouts", run="unknown"), 404),
        (viewer.get("/api/rollouts"), 400),
        (viewer.get("/api/rollouts", run=viewer.run, reward_min="much"), 400),
        (viewer.get("/api/rollout", run=viewer.run, task="first", repeat=0), 400),
        (viewer.get("/api/events", run="unknown"), 404),
    ]
    for reply, status in replies:
        assert reply.status_code == status, reply.text
        assert isinstance(reply.json()["detail"], str)


def test_status_is_sent_until_the_run_ends(open_viewer):
    events = open_viewer(Collection(replies=2)).events()
    assert [name for name, _ in events] == ["status", "status", "ended"]
    assert events[0][1] == {**STATUS, "servers": []}
    assert (events[-1][1]["scored"], events[-1][1]["failed"]) == (3, 1)


def test_run_without_control_is_followed_by_its_files(open_viewer, tmp_path):
    viewer = open_viewer(Collection())
    results = tmp_path / "results" / "small.jsonl"
    write_record(results)
    files = RunFiles(results=results)

    class Ending(Collection):
        def __call__(self, results, verb, /, **arguments):
            if len(self.asked) == 2:
                write_record(results, state="stopped")
            return super().__call__(results, verb, **arguments)

    viewer.app.state.control = Ending()
    with locked(files):
        events = viewer.events()
    assert [name for name, _ in events] == ["status", "status", "ended"]
    status = events[0][1]
    assert (status["state"], status["running"], status["concurrency"]) == ("collecting", None, 8)
    assert (status["planned"], status["scored"], status["failed"]) == (4, 3, {"timeout": 1})
    assert events[-1][1]["state"] == "stopped"


@pytest.mark.parametrize(("unresolved", "first"), [(1, "starting"), (0, "ending")])
def test_collection_that_takes_no_requests_is_starting_or_ending(
    open_viewer, tmp_path, monkeypatch, unresolved, first
):
    monkeypatch.setattr(live, "PAUSE_S", 0.01)
    viewer = open_viewer(Collection())
    results = tmp_path / "results" / "small.jsonl"
    write_record(results)
    if unresolved:
        RunFiles(results=results).failures.unlink()

    class Slow(Collection):
        """A collection that answers the second request only."""

        def __call__(self, results, verb, /, **arguments):
            self.asked.append(verb)
            if len(self.asked) == 2:
                return {**STATUS, "state": "collecting", "unresolved": 1}
            if len(self.asked) == 4:
                write_record(results, state="stopped")
            raise StartingOrEnding("no rollouts are running")

    viewer.app.state.control = Slow()
    with locked(RunFiles(results=results)):
        events = viewer.events()
    assert [data["state"] for _, data in events] == [first, "collecting", "ending", "stopped"]


def test_further_event_streams_are_rejected(open_viewer):
    viewer = open_viewer(Collection())
    places = viewer.app.state.streams.places
    for _ in range(MOST_STREAMS):
        asyncio.run(places.acquire())
    reply = viewer.get("/api/events", run=viewer.run)
    assert (reply.status_code, reply.json()["detail"][:13]) == (409, "32 live pages")
    places.release()
    assert viewer.events()[-1][0] == "ended"


def test_verbs_reach_the_collection(open_viewer):
    collection = Collection()
    viewer = open_viewer(collection)
    assert viewer.ask("pause").json() == {"changed": True}
    viewer.ask("concurrency", wanted=8)
    viewer.ask("concurrency", wanted=None)
    viewer.ask("cancel", task=1, repeat=0)
    assert [asked[1:] for asked in collection.asked if asked[1] != "status"] == [
        ("pause", {}),
        ("concurrency", {"wanted": 8}),
        ("concurrency", {}),
        ("cancel", {"task": 1, "repeat": 0}),
    ]


def test_rejected_verbs_say_why(open_viewer):
    viewer = open_viewer(Collection())
    refused = viewer.ask("drain")
    assert (refused.status_code, refused.json()["detail"]) == (409, "small.jsonl: it is not collecting.")
    for verb, arguments in [("explode", {}), ("cancel", {}), ("concurrency", {"wanted": 0}), ("pause", {"x": 1})]:
        reply = viewer.ask(verb, **arguments)
        assert reply.status_code == 400, verb
        assert isinstance(reply.json()["detail"], str)


def test_files_outside_cannot_be_read(open_viewer, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = write_run(outside, "secret")
    write_rows(secret, [row | {"reward": 0.25, "note": SECRET} for row in read_rows(secret)])
    (outside / "secret.log").write_text(SECRET)
    (outside / "secret.png").write_text(SECRET)
    viewer = open_viewer(Collection())
    paths = [str(secret), "../outside/secret.jsonl", f"file://{secret}", "../outside", "small/../../outside/secret"]
    routes = ["rollouts", "rollout", "tokens", "task", "compare", "notes", "raw", "media", "selection", "overview"]
    for path in paths:
        for route in [*routes, "events", "facets", f"runs/{quote(path, safe='')}", f"runs/{path}"]:
            for names in ({"run": path}, {"run": [viewer.run, path]}, {"run": viewer.run, "path": path, "file": path}):
                reply = viewer.get(f"/api/{route}", **names, task=0, repeat=0, n=0)
                assert reply.status_code < 500, reply.url
                assert SECRET not in reply.text, reply.url
        for address in (f"/{path}", f"/{quote(path, safe='')}", f"/assets/{quote('../' * 9)}{path.lstrip('/')}"):
            reply = viewer.browser.get(address)
            assert SECRET not in reply.text, address


def test_paths_in_results_are_not_followed_outside(open_viewer, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_text(SECRET)
    (tmp_path / "results").mkdir()
    results = write_run(tmp_path / "results")
    hostile = {
        "_ng_media_dir": str(tmp_path),
        "_ng_failure_log": str(secret),
        "_ng_failure_server": "../../secret.png",
    }
    image = {"type": "input_image", "image_url": "secret.png"}
    for path in (results, results.with_name("small_failures.jsonl")):
        rows = [row | hostile for row in read_rows(path)]
        for row in rows:
            row["responses_create_params"]["input"][0]["content"] += [image, image | {"image_url": f"file://{secret}"}]
        write_rows(path, rows)
    os.symlink(secret, tmp_path / "results" / "linked.png")
    viewer = Viewer(tmp_path / "results", Collection())
    for task, repeat in ((0, 0), (1, 1)):
        for route in ("rollout", "task"):
            assert SECRET not in viewer.get(f"/api/{route}", run=viewer.run, task=task, repeat=repeat).text
        for n in range(4):
            reply = viewer.get("/api/media", run=viewer.run, task=task, repeat=repeat, n=n)
            assert SECRET not in reply.text
            assert reply.status_code in (200, 404, 409)
    viewer.library.close()
