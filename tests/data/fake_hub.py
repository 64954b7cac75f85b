"""A local HTTP server that serves files as GitHub, the Hugging Face Hub and other hosts do, with their faults."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import orjson
import pytest

TOKEN = "hf_right"
COMMIT = "1" * 40
VARIABLES = ("NEMO_GYM_MIRROR", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE")
GITHUB, HUGGINGFACE = "raw.githubusercontent.com", "huggingface.co"


class Reply(NamedTuple):
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = {}
    is_cut: bool = False
    """Close the connection in the middle of the content."""


class FakeHub:
    """The files of a fake hub, the faults that its next replies have, and the requests that it got.

    Programs use it through the variables in `env`, which the fixture sets in this process.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        """The path of each request."""
        self._files: dict[str, bytes] = {}
        self._gated: set[str] = set()
        self._faults: defaultdict[str, list[Reply]] = defaultdict(list)

    @property
    def env(self) -> dict[str, str]:
        return {"NEMO_GYM_MIRROR": self.url, "HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1"}

    def github(self, repo: str, path: str, content: bytes, revision: str = "main") -> None:
        """Serve a file of a GitHub repository, instead of an earlier one with its name."""
        self._files[f"{GITHUB}/{repo}/{revision}/{path}"] = content

    def huggingface(
        self, repo: str, path: str, content: bytes, revision: str = "main", *, is_gated: bool = False
    ) -> None:
        """Serve a file of a dataset. A gated one needs `TOKEN`."""
        key = f"{HUGGINGFACE}/datasets/{repo}/resolve/{revision}/{path}"
        self._files[key] = content
        (self._gated.add if is_gated else self._gated.discard)(key)

    def file(self, url: str, content: bytes) -> None:
        """Serve a file of another host."""
        parts = urlsplit(url)
        self._files[f"{parts.netloc}{unquote(parts.path)}"] = content

    def remove(self, name: str) -> None:
        """Stop serving the files whose address ends so."""
        self._files = {key: content for key, content in self._files.items() if not key.endswith(name)}

    def fail(self, name: str, *statuses: int, **headers: str) -> None:
        """Answer the next requests for addresses that end so with these statuses."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self._faults[name] += [Reply(status, b"sorry", named) for status in statuses]

    def break_off(self, name: str, times: int = 1) -> None:
        """Close the connection in the middle of the next replies for addresses that end so."""
        self._faults[name] += [Reply(200, b"x" * 1000, is_cut=True)] * times

    def reply(self, path: str, authorization: str | None) -> Reply:
        self.requests.append(path)
        asked = unquote(urlsplit(path).path).lstrip("/")
        for name, faults in self._faults.items():
            if asked.endswith(name) and faults:
                return faults.pop(0)
        if found := re.fullmatch(r"cdn/(.+)", asked):
            return Reply(200, self._files[found[1]])
        if found := re.fullmatch(rf"(?:{HUGGINGFACE}/)?api/datasets/([^/]+/[^/]+)(/.*)?", asked):
            return self._listing(found[1], found[2] or "")
        key = f"{HUGGINGFACE}/{asked}" if asked.startswith("datasets/") else asked
        content = self._files.get(key)
        if content is None:
            return Reply(404, b"404: Not Found", {"x-error-code": "EntryNotFound"} if "datasets/" in key else {})
        if key in self._gated and authorization != f"Bearer {TOKEN}":
            reason = "You must have access to it and be authenticated to access it."
            headers = {
                "x-error-code": "GatedRepo",
                "x-error-message": f"Access to the dataset is restricted. {reason}",
            }
            return Reply(403 if authorization else 401, b"", headers)
        return self._resolved(key, content) if key.startswith(HUGGINGFACE) else Reply(200, content)

    def _resolved(self, key: str, content: bytes) -> Reply:
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"x-repo-commit": COMMIT, "etag": etag}
        if not key.endswith(".parquet"):
            return Reply(200, content, headers)
        # Large files are on other servers.
        linked = {"x-linked-etag": etag, "x-linked-size": str(len(content)), "location": f"{self.url}/cdn/{key}"}
        return Reply(302, b"", headers | linked)

    def _listing(self, repo: str, rest: str) -> Reply:
        start = f"{HUGGINGFACE}/datasets/{repo}/resolve/"
        sizes = {
            key[len(start) :].partition("/")[2]: len(self._files[key]) for key in self._files if key.startswith(start)
        }
        if not sizes:
            return Reply(404, b"{}", {"x-error-code": "RepoNotFound"})
        entries = [{"type": "file", "path": name, "size": size, "oid": COMMIT} for name, size in sizes.items()]
        siblings = [{"rfilename": name} for name in sizes]
        whole = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
        return Reply(200, orjson.dumps(entries if rest.startswith("/tree/") else whole))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def answer(self) -> None:
        reply = self.server.hub.reply(self.path, self.headers.get("authorization"))
        self.send_response(reply.status)
        for name, value in {"content-length": str(len(reply.content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.content[: len(reply.content) // 2] if reply.is_cut else reply.content)
        self.close_connection = self.close_connection or reply.is_cut

    do_GET = do_HEAD = answer  # noqa: N815

    def log_message(self, format: str, *words: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    hub: FakeHub


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Serve a hub without files, and make this process use it instead of the real hosts."""
    hub = FakeHub()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.hub = hub
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in hub.env.items():
        monkeypatch.setenv(name, value)
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def dead_hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make this process use a hub that refuses connections; return the variables for other processes."""
    env = {"NEMO_GYM_MIRROR": "http://127.0.0.1:1", "HF_ENDPOINT": "http://127.0.0.1:1"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env
