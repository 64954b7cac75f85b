"""Tests of the viewer's token, its sessions, and the checks of names and origins."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from nemo_gym.rollouts.control.calling import ask_run
from nemo_gym.viewer import live, routes_rollouts, routes_runs
from nemo_gym.viewer.access import Access
from nemo_gym.viewer.app import create_app
from nemo_gym.viewer.library import Library
from tests.each_case import each_case
from tests.viewer.small_run import write_run

PORT = 8765
OWN = f"127.0.0.1:{PORT}"


class Viewer:
    """A viewer of one run, and the addresses that it printed."""

    def __init__(self, folder, host="127.0.0.1"):
        self.printed = []
        self.library = Library([write_run(folder)], cache=folder / "cache")
        self.access = Access(host, PORT, self.printed.append)
        self.app = create_app(self.library, self.access, control=ask_run)

    def browser(self, host=OWN, **headers):
        return TestClient(self.app, base_url=f"http://{host}", headers=headers, follow_redirects=False)

    @property
    def way_in(self):
        return f"/?{urlsplit(self.access.address).query}"

    def connected(self, **headers):
        browser = self.browser(**headers)
        assert browser.get(self.way_in).status_code == 303
        return browser


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    viewer = Viewer(tmp_path_factory.mktemp("viewer"))
    yield viewer
    viewer.library.close()


def all_routes():
    yield "GET", "/"
    yield "GET", "/app.js"
    for module in (live, routes_runs, routes_rollouts):
        for route in module.router.routes:
            for method in route.methods:
                yield method, re.sub(r"\{.*\}", "x", route.path)


def test_every_route_without_session_is_forbidden(viewer):
    routes = [*all_routes(), ("GET", "/index.html"), ("HEAD", "/"), ("PUT", "/api/runs")]
    assert len(routes) > 10
    browser = viewer.browser()
    for method, path in routes:
        reply = browser.request(method, path)
        assert reply.status_code == 403, (method, path)
        if path.startswith("/api/") and method != "HEAD":
            assert reply.json()["detail"].startswith("This browser is not connected")


def test_token_is_exchanged_for_a_strict_cookie(viewer):
    browser = viewer.browser()
    reply = browser.get(viewer.way_in)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert re.fullmatch(rf"ng_view_{PORT}=[\w-]{{43}}; HttpOnly; Path=/; SameSite=strict", cookie)
    assert browser.get("/").status_code == 200
    assert browser.get("/api/runs").status_code == 200


def test_token_is_good_for_one_browser(viewer):
    way_in = viewer.way_in
    first = viewer.browser()
    assert first.get(way_in).status_code == 303
    second = viewer.browser().get(way_in)
    assert second.status_code == 403
    assert "This address was used before" in second.text
    assert "set-cookie" not in second.headers
    # The same browser may reload the page that it opened.
    assert first.get(way_in).headers["location"] == "/"
    assert viewer.printed[-1] == viewer.access.address
    assert viewer.browser().get(viewer.way_in).status_code == 303


def test_head_request_does_not_use_up_the_token(viewer):
    way_in = viewer.way_in
    assert viewer.browser().head(way_in).status_code == 403
    assert viewer.browser().get(way_in).status_code == 303


def test_link_on_another_site_also_opens_the_page(viewer):
    """After a redirect, the browser would not send the strict cookie."""
    reply = viewer.browser(**{"Sec-Fetch-Site": "cross-site"}).get(viewer.way_in)
    assert reply.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/">' in reply.text


@each_case(
    ("host", "is_own"),
    [
        (OWN, True),
        (f"localhost:{PORT}", True),
        (f"[::1]:{PORT}", True),
        ("localhost:9000", True),
        (f"evil.example:{PORT}", False),
        (f"127.0.0.1.evil.example:{PORT}", False),
        (f"localhost.evil.example:{PORT}", False),
        ("192.0.2.1", False),
        ("", False),
        ("[", False),
    ],
)
def test_only_own_host_names_are_accepted(viewer, host, is_own):
    browser = viewer.connected()
    # Another name would get no cookie from the client.
    reply = browser.get(f"http://{OWN}/api/runs", headers={"Host": host})
    assert reply.status_code == (200 if is_own else 403)


def test_wildcard_address_accepts_addresses_and_own_name(tmp_path):
    viewer = Viewer(tmp_path, host="0.0.0.0")
    browser = viewer.connected()
    names = ["192.0.2.1", urlsplit(viewer.access.address).netloc, "evil.example"]
    found = [browser.get("/api/runs", headers={"Host": name}).status_code for name in names]
    viewer.library.close()
    assert found == [200, 200, 403]


@each_case(
    ("origin", "is_own"),
    [
        (f"http://{OWN}", True),
        ("http://127.0.0.1:9999", False),
        (f"http://localhost:{PORT}", False),
        ("https://evil.example", False),
        ("null", False),
        ("http://[", False),
        (None, False),
    ],
)
def test_changes_are_accepted_from_own_pages_only(viewer, origin, is_own):
    headers = {} if origin is None else {"Origin": origin}
    reply = viewer.connected().post("/api/notes", json={}, headers=headers)
    assert reply.status_code == (400 if is_own else 403)


def test_every_response_has_the_security_headers(viewer):
    browser = viewer.connected()
    for reply in (browser.get("/"), browser.get("/api/runs"), browser.get("/api/none"), viewer.browser().get("/")):
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self' 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
    assert browser.get("/api/runs").headers["cache-control"] == "no-store"
