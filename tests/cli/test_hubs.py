"""Tests of the commands that upload and download datasets, against small hubs in this process."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import orjson
import pytest
import yaml

pytestmark = pytest.mark.slow

has_library = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="huggingface_hub, of the extra 'full', is not installed",
)
ROWS = b'{"responses_create_params": {"input": "2 + 2?"}}\n'


class Hub(BaseHTTPRequestHandler):
    """A request handler that calls its server's `handle_call`."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        status, headers, content = self.server.handle_call(self.command, self.path, dict(self.headers), body)
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, *words):
        pass


@contextmanager
def serving(handle_call):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.handle_call = handle_call
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def as_json(value, status=200, **headers):
    return status, {"content-type": "application/json", **headers}, orjson.dumps(value)


class GitLab:
    """The generic packages of one project."""

    def __init__(self):
        self.files: dict[tuple[str, str, str], bytes] = {}

    def packages(self):
        return sorted({key[:2] for key in self.files})

    def __call__(self, method, path, headers, body):
        if {name.lower(): value for name, value in headers.items()}.get("private-token") != "right":
            return as_json({"message": "401 Unauthorized"}, 401)
        url = urlsplit(path)
        if file := re.fullmatch(r"/api/v4/projects/7/packages/generic/([^/]+)/([^/]+)/(.+)", url.path):
            key = tuple(map(unquote, file.groups()))
            if method == "PUT":
                self.files[key] = body
                return as_json({"message": "201 Created"}, 201)
            return (200, {}, self.files[key]) if key in self.files else as_json({"message": "404 Not Found"}, 404)
        if method == "DELETE":
            doomed = self.packages()[int(url.path.rpartition("/")[2])]
            self.files = {key: body if key[:2] != doomed else None for key, body in self.files.items()}
            return 204, {}, b""
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        wanted, size, page = query["package_name"], int(query["per_page"]), int(query["page"])
        found = [{"id": number, "name": name} for number, (name, _) in enumerate(self.packages()) if wanted in name]
        following = str(page + 1) if len(found) > page * size else ""
        return as_json(found[(page - 1) * size : page * size], **{"x-next-page": following})

    def left(self):
        return {key for key, body in self.files.items() if body is not None}


@pytest.fixture
def gitlab(workplace):
    hub = GitLab()
    with serving(hub) as url:
        workplace.write("env.yaml", f"gitlab_url: {url}/api/v4/projects/7\ngitlab_token: right\n")
        hub.url = url
        yield hub


def test_gitlab_upload_and_download_round_trip(workplace, gitlab):
    workplace.write("sums.jsonl", ROWS.decode())
    words = ("+dataset_name=sums", "+version=0.0.1")
    finished = workplace.run("ng_upload_dataset_to_gitlab", *words, "+input_jsonl_fpath=sums.jsonl")
    assert finished == (0, "sums.jsonl uploaded as sums.jsonl to sums 0.0.1\n", "")
    assert gitlab.files == {("sums", "0.0.1", "sums.jsonl"): ROWS}
    more = ("+artifact_fpath=sums.jsonl", "+output_fpath=back/sums.jsonl")
    assert workplace.run("ng_download_dataset_from_gitlab", *words, *more) == (0, "back/sums.jsonl\n", "")
    assert (workplace.folder / "back/sums.jsonl").read_bytes() == ROWS


def test_flags_and_overrides_are_equivalent(workplace, gitlab):
    workplace.write("sums.jsonl", ROWS.decode())
    words = ("--storage", "gitlab", "--name", "sums", "--revision", "0.10")
    assert workplace.run("ng", "dataset", "upload", *words, "--input", "sums.jsonl").code == 0
    assert set(gitlab.files) == {("sums", "0.10", "sums.jsonl")}
    words = ("--storage=gitlab", *words[2:], "--artifact", "sums.jsonl", "--output", "back.jsonl")
    assert workplace.run("ng", "dataset", "download", *words).code == 0
    assert (workplace.folder / "back.jsonl").read_bytes() == ROWS


def test_only_versions_of_this_package_are_deleted(workplace, gitlab):
    # The names of 300 packages contain this one. GitLab returns them in three pages.
    gitlab.files = {(name, str(version), "x"): b"" for name in ("a sum", "s", "sums") for version in range(100)}
    assert workplace.run("ng_delete_dataset_from_gitlab", "+dataset_name=s") == (0, "s: 100 versions deleted\n", "")
    assert {name for name, _, _ in gitlab.left()} == {"a sum", "sums"}
    finished = workplace.run("ng", "dataset", "rm", "--name", "products")
    assert (finished.code, "package not found in " in finished.err) == (1, True)


def test_project_is_derived_from_mlflow_tracking_uri(workplace, gitlab):
    gitlab.files = {("sums", "1.0.0", "x.jsonl"): ROWS}
    url = f"{gitlab.url}/api/v4/projects/7/ml/mlflow"
    workplace.write("env.yaml", f"mlflow_tracking_uri: {url}\nmlflow_tracking_token: right\n")
    words = ("+dataset_name=sums", "+version=1.0.0", "+artifact_fpath=x.jsonl", "+output_fpath=x.jsonl")
    assert workplace.run("ng_download_dataset_from_gitlab", *words).code == 0


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("", "Error: gitlab_url and gitlab_token are missing. Add to env.yaml the project's API address"),
        ("gitlab_url: URL\ngitlab_token: wrong\n", 'returned 401: {"message":"401 Unauthorized"}'),
        ("gitlab_url: URL\ngitlab_token: right\n", 'returned 404: {"message":"404 Not Found"}'),
        ("gitlab_url: http://127.0.0.1:9/api/v4/projects/7\ngitlab_token: right\n", "request failed ("),
        (
            "gitlab_url: https://gitlab.com/me/sums\ngitlab_token: right\n",
            "Error: gitlab_url: 'https://gitlab.com/me/sums' is not the API address of a GitLab project. Write it",
        ),
        (
            "mlflow_tracking_uri: http://tracker\nmlflow_tracking_token: right\n",
            "Error: mlflow_tracking_uri: 'http://tracker' is not the API address of a GitLab project.",
        ),
    ],
)
def test_gitlab_errors_are_reported_without_output(workplace, gitlab, env, message):
    workplace.write("env.yaml", env.replace("URL", f"{gitlab.url}/api/v4/projects/7"))
    words = ("+dataset_name=sums", "+version=1.0.0", "+artifact_fpath=x.jsonl", "+output_fpath=out/x.jsonl")
    finished = workplace.run("ng_download_dataset_from_gitlab", *words)
    assert (finished.code, finished.out, finished.err.count("\n")) == (1, "", 1)
    assert message in finished.err
    assert "right" not in finished.err
    assert list(workplace.folder.glob("out/*")) == []


def test_missing_dataset_is_downloaded_during_preparation(workplace, gitlab):
    gitlab.files = {("sums", "1.0.0", "t.jsonl"): ROWS}
    workplace.environment("plain")
    source = {"type": "gitlab", "dataset_name": "sums", "version": "1.0.0", "artifact_fpath": "t.jsonl"}
    dataset = {"name": "t", "type": "train", "jsonl_fpath": "resources_servers/plain/data/t.jsonl", "license": "MIT"}
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "plain"},
        "datasets": [{**dataset, "source": source}],
    }
    blocks = {
        "plain": {"resources_servers": {"plain": {"entrypoint": "app.py"}}},
        "solver": {"responses_api_agents": {"simple_agent": agent}},
    }
    workplace.write("run.yaml", yaml.safe_dump(blocks))
    words = ("+config_paths=[run.yaml]", "+output_dirpath=out", "+mode=train_preparation", "+should_download=true")
    finished = workplace.run("ng_prepare_data", *words, "+data_source=gitlab")
    assert finished.code == 0, finished.err
    assert finished.err.startswith("fetching dataset 't' to ")
    assert (workplace.folder / "resources_servers/plain/data/t.jsonl").read_bytes() == ROWS
    assert (workplace.folder / "out/train.jsonl").is_file()


class HuggingFace:
    """The part of the Hub's API that the library calls."""

    def __init__(self):
        self.files: dict[tuple[str, str], bytes] = {}
        self.collected: list[tuple[str, str]] = []
        self.commits: list[dict] = []

    def __call__(self, method, path, headers, body):
        given = {name.lower(): value for name, value in headers.items()}
        if given.get("authorization") != "Bearer hf_right":
            return as_json({"error": "Invalid username or password."}, 401)
        url = unquote(urlsplit(path).path)
        if url == "/api/repos/create":
            asked = orjson.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            return as_json({"url": f"{self.url}/datasets/{repo}", "name": repo, "id": repo})
        if found := re.fullmatch(r"/api/datasets/(.+)/preupload/(.+)", url):
            files = orjson.loads(body)["files"]
            return as_json({"files": [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in files]})
        if found := re.fullmatch(r"/api/datasets/(.+)/commit/(.+)", url):
            lines = [orjson.loads(line) for line in body.splitlines()]
            for line in lines:
                if line["key"] == "file":
                    self.files[found[1], line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.commits += [{**lines[0]["value"], "query": urlsplit(path).query, "branch": found[2]}]
            answer = {"commitUrl": f"{self.url}/datasets/{found[1]}/commit/1", "commitOid": "1" * 40}
            pull = {"pullRequestUrl": f"{self.url}/datasets/{found[1]}/discussions/1"}
            return as_json({**answer, **(pull if "create_pr=1" in path else {})})
        if found := re.fullmatch(r"/api/collections/(.+)/items?", url):
            self.collected.append((found[1], orjson.loads(body)["item"]["id"]))
            return as_json({
                "slug": found[1], "title": "t", "owner": {"name": "o"}, "items": [], "private": False, "theme": "blue",
                "lastUpdated": "2026-01-01T00:00:00.000Z", "position": 0, "upvotes": 0,
                "url": f"{self.url}/collections/x",
            })  # fmt: skip
        if found := re.fullmatch(r"/api/datasets/(.+)/tree/.+", url):
            return as_json([
                {"type": "file", "path": name, "size": len(content), "oid": "2" * 40}
                for (repo, name), content in self.files.items() if repo == found[1]
            ])  # fmt: skip
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(/revision/.+)?", url):
            files = [{"rfilename": name} for repo, name in self.files if repo == found[1]]
            return as_json({"id": found[1], "sha": "1" * 40, "siblings": files, "private": False, "tags": []})
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.+)", url):
            content = self.files.get((found[1], found[2]))
            if content is None:
                return as_json({"error": "Entry not found"}, 404, **{"x-error-code": "EntryNotFound"})
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            return 200, {"etag": etag, "x-repo-commit": "1" * 40}, content
        return as_json({"error": f"unexpected {method} {path} {json.dumps(given)}"}, 500)


@pytest.fixture
def hub(workplace):
    hub = HuggingFace()
    workplace.write("sums.jsonl", ROWS.decode())
    with serving(hub) as url:
        hub.url = url
        workplace.env |= {"HF_ENDPOINT": url, "HF_HOME": str(workplace.folder / "hf"), "HF_HUB_DISABLE_XET": "1"}
        yield hub


UPLOAD = (
    "+hf_token=hf_right",
    "+hf_organization=us",
    "+hf_collection_name=Our Gym",
    "+hf_collection_slug=64f",
    "+input_jsonl_fpath=sums.jsonl",
    "+resource_config_path=resources_servers/mcqa/configs/mcqa.yaml",
)


@has_library
def test_uploaded_file_becomes_split_in_collection(workplace, hub):
    finished = workplace.run("ng_upload_dataset_to_hf", *UPLOAD, "+dataset_name=sums", "+split=validation")
    assert finished.code == 0, finished.err
    assert finished.out == "sums.jsonl uploaded as us/Nemotron-RL-sums, split validation\n"
    assert hub.files == {("us/Nemotron-RL-sums", "validation.jsonl"): ROWS}
    assert hub.collected == [("us/our-gym-64f", "us/Nemotron-RL-sums")]


@has_library
def test_upload_takes_token_from_variable(workplace, hub):
    workplace.env |= {"HF_TOKEN": "hf_right"}
    finished = workplace.run("ng_upload_dataset_to_hf", *UPLOAD[1:], "+dataset_name=sums")
    assert finished.code == 0, finished.err
    assert set(hub.files) == {("us/Nemotron-RL-sums", "train.jsonl")}


@has_library
def test_unnamed_dataset_is_named_after_its_environment(workplace, hub):
    words = ("+create_pr=true", "+commit_message=Sums", "+hf_dataset_prefix=Ours", "--storage", "hf")
    finished = workplace.run("ng", "dataset", "upload", *UPLOAD, *words)
    assert finished.code == 0, finished.err
    assert set(hub.files) == {("us/Ours-knowledge-mcqa", "train.jsonl")}
    (commit,) = hub.commits
    assert (commit["summary"], "create_pr=1" in commit["query"]) == ("Sums", True)


@has_library
def test_dataset_file_is_downloaded(workplace, hub):
    hub.files = {("us/sums", "parts/a.jsonl"): ROWS, ("us/sums", "data/test.jsonl"): ROWS * 2}
    words = ("+repo_id=us/sums", "+hf_token=hf_right")
    finished = workplace.run(
        "ng_download_dataset_from_hf", *words, "+artifact_fpath=parts/a.jsonl", "+output_dirpath=got"
    )
    assert finished.code == 0, finished.err
    assert (workplace.folder / "got/a.jsonl").read_bytes() == ROWS
    words = ("--repo-id", "us/sums", "--split", "test", "-o", "got/test.jsonl", "+hf_token=hf_right")
    assert workplace.run("ng", "dataset", "download", *words).code == 0
    assert (workplace.folder / "got/test.jsonl").read_bytes() == ROWS * 2


@has_library
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("+artifact_fpath=b.jsonl", "+hf_token=hf_right"), "dataset 'us/sums': download of b.jsonl: "),
        (("+split=train", "+hf_token=hf_right"), "does not contain train.jsonl. Name the file: --artifact …"),
        (("+split=train", "+hf_token=hf_wrong"), "dataset 'us/sums': download of train: "),
    ],
)
def test_hub_errors_are_reported(workplace, hub, words, message):
    hub.files = {("us/sums", "a.jsonl"): ROWS}
    finished = workplace.run("ng_download_dataset_from_hf", "+repo_id=us/sums", "+output_fpath=out/x.jsonl", *words)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith("Error: ")
    assert message in finished.err
    assert list(workplace.folder.glob("out/*")) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("+artifact_fpath=b", "+split=train"), "give at most one of artifact_fpath and split."),
        ((), "every split is downloaded, so give output_dirpath instead of output_fpath, or add split."),
    ],
)
def test_contradicting_download_settings_are_rejected(workplace, words, problem):
    finished = workplace.run("ng_download_dataset_from_hf", "+repo_id=us/sums", "+output_fpath=out/x.jsonl", *words)
    assert (finished.code, finished.out) == (2, "")
    assert problem in finished.err


@has_library
def test_without_split_all_splits_are_downloaded(workplace, hub):
    hub.files = {
        ("us/sums", "train.jsonl"): ROWS,
        ("us/sums", "data/test.jsonl"): ROWS * 2,
        ("us/sums", "README.md"): b"",
    }
    words = ("--repo-id", "us/sums", "--output-dir", "got", "+hf_token=hf_right")
    assert workplace.run("ng", "dataset", "download", *words) == (0, "got/train.jsonl\ngot/test.jsonl\n", "")
    found = {path.name: path.read_bytes() for path in (workplace.folder / "got").iterdir()}
    assert found == {"train.jsonl": ROWS, "test.jsonl": ROWS * 2}
    hub.files = {("us/sums", "README.md"): b""}
    finished = workplace.run("ng", "dataset", "download", *words)
    assert finished.code == 1
    assert finished.err.startswith("Error: dataset 'us/sums' contains none of train.jsonl, validation.jsonl, ")


@has_library
@pytest.mark.parametrize("words", [("--split", "test"), ("--artifact", "a.jsonl"), ()])
def test_unreachable_hub_is_reported_at_once(workplace, words):
    words = ("dataset", "download", "--repo-id", "us/sums", "--output-dir", "got", *words)
    finished = workplace.run("ng", *words, HF_ENDPOINT="http://127.0.0.1:1")
    assert finished.code == 1
    assert finished.err.endswith(
        ": the hub at http://127.0.0.1:1 cannot be reached (connection refused). Check the network, or name a mirror: "
        "export HF_ENDPOINT=https://…\n"
    )
    # The library prints a line for each retry.
    assert finished.err.count("\n") == 1
    offline = workplace.run("ng", *words, HF_HUB_OFFLINE="1")
    assert "the environment variable HF_HUB_OFFLINE forbids network access." in offline.err


@has_library
@pytest.mark.parametrize(
    ("program", "words", "left"),
    [
        ("ng_gitlab_to_hf_dataset", (), set()),
        ("ng_upload_dataset_to_hf", ("+delete_from_gitlab=true",), set()),
        ("ng_upload_dataset_to_hf", (), {("sums", "1", "x")}),
    ],
)
def test_dataset_is_moved_between_hubs(workplace, gitlab, hub, program, words, left):
    gitlab.files = {("sums", "1", "x"): ROWS}
    finished = workplace.run(program, *UPLOAD, "+dataset_name=sums", *words)
    assert finished.code == 0, finished.err
    assert hub.files == {("us/Nemotron-RL-sums", "train.jsonl"): ROWS}
    assert gitlab.left() == left


@has_library
def test_failed_upload_deletes_nothing(workplace, gitlab, hub):
    gitlab.files = {("sums", "1", "x"): ROWS}
    words = ("+hf_token=hf_wrong", *UPLOAD[1:], "+dataset_name=sums")
    finished = workplace.run("ng_gitlab_to_hf_dataset", *words)
    assert (finished.code, gitlab.left()) == (1, {("sums", "1", "x")})
    assert finished.err.startswith("Error: sums.jsonl: upload as us/Nemotron-RL-sums: ")
    assert "hf_wrong" not in finished.err


@pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is not None, reason="huggingface_hub is installed")
def test_missing_huggingface_hub_is_reported(workplace):
    workplace.write("sums.jsonl", ROWS.decode())
    finished = workplace.run("ng_upload_dataset_to_hf", *UPLOAD)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err == "Error: huggingface_hub is required but not installed. Run: pip install 'nemo-gym[hub]'\n"


def test_migrate_rejects_redundant_delete_setting(workplace, gitlab):
    words = (*UPLOAD, "+dataset_name=sums", "+delete_from_gitlab=true")
    finished = workplace.run("ng_gitlab_to_hf_dataset", *words)
    assert finished.code == 1
    assert finished.err.startswith("Error: delete_from_gitlab: ng dataset migrate always deletes the package.")
