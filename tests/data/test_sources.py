"""Fetching public files once, and verifying them from then on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.data.sources import GitHub, HuggingFace, Source, Url, fetch
from tests.data.fake_hub import COMMIT, TOKEN, FakeHub

ROWS = b'{"question": "2 + 2?"}\n'
OTHER = b'{"question": "3 + 3?"}\n'
SUMS = GitHub("us/sums", "data/test.jsonl")
SHA256 = hashlib.sha256(ROWS).hexdigest()
OTHER_SHA256 = hashlib.sha256(OTHER).hexdigest()


def problem_of(source: Source, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        fetch(source, folder=folder)
    assert "\n" not in str(caught.value)
    assert [path for path in folder.rglob("*") if path.suffix == ".partial"] == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "revision"),
    [
        (SUMS, "main"),
        (GitHub("us/sums", "data/test.jsonl", revision="v1"), "v1"),
        (HuggingFace("us/sums", "data/test.jsonl"), COMMIT),
        (HuggingFace("us/sums", "data/test.parquet"), COMMIT),
        (Url("https://example.org/files/test.jsonl?raw=1"), None),
    ],
)
def test_file_is_fetched_once_and_recorded(
    fake_hub: FakeHub, tmp_path: Path, source: Source, revision: str | None
) -> None:
    for tag in ("main", "v1"):
        fake_hub.github("us/sums", "data/test.jsonl", ROWS, tag)
    fake_hub.huggingface("us/sums", "data/test.jsonl", ROWS)
    fake_hub.huggingface("us/sums", "data/test.parquet", ROWS)
    fake_hub.file("https://example.org/files/test.jsonl", ROWS)
    path = fetch(source, folder=tmp_path / "source")
    assert (path.parent, path.stem, path.read_bytes()) == (tmp_path / "source", "test", ROWS)
    record = orjson.loads(path.with_name(f"{path.name}.source.json").read_bytes())
    assert record.pop("date").startswith("20")
    assert record == {"address": source.url, "revision": revision, "sha256": SHA256, "size": len(ROWS)}
    asked = len(fake_hub.requests)
    assert fetch(source, folder=tmp_path / "source") == path
    assert len(fake_hub.requests) == asked
    assert len(list(path.parent.iterdir())) == 2


def test_first_download_pins_the_content(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.github("us/sums", "data/test.jsonl", ROWS)
    path = fetch(SUMS, folder=tmp_path)
    path.unlink()
    fake_hub.github("us/sums", "data/test.jsonl", OTHER)
    problem = problem_of(SUMS, tmp_path)
    assert f"its SHA-256 is {OTHER_SHA256}, but {path}.source.json recorded {SHA256} on " in problem
    assert problem.endswith(
        f"The file at this address has changed. To accept the new content, delete {path}.source.json."
    )
    assert not path.exists()
    path.with_name(f"{path.name}.source.json").unlink()
    assert fetch(SUMS, folder=tmp_path).read_bytes() == OTHER


def test_pinned_hash_must_match(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.github("us/sums", "data/test.jsonl", OTHER)
    pinned = GitHub("us/sums", "data/test.jsonl", sha256=SHA256)
    problem = problem_of(pinned, tmp_path)
    assert f"its SHA-256 is {OTHER_SHA256}, but {SHA256} is pinned. The file at this address has changed." in problem
    fake_hub.github("us/sums", "data/test.jsonl", ROWS)
    assert fetch(pinned, folder=tmp_path).read_bytes() == ROWS


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_file_that_was_changed_is_reported(fake_hub: FakeHub, tmp_path: Path, sha256: str | None) -> None:
    fake_hub.github("us/sums", "data/test.jsonl", ROWS)
    source = GitHub("us/sums", "data/test.jsonl", sha256=sha256)
    path = fetch(source, folder=tmp_path)
    path.write_bytes(OTHER)
    problem = problem_of(source, tmp_path)
    assert problem.startswith(f"{path}: its SHA-256 is {OTHER_SHA256}, but ")
    assert f"Delete {path} to download it again" in problem
    path.unlink()
    assert fetch(source, folder=tmp_path).read_bytes() == ROWS


def test_another_revision_is_downloaded(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.github("us/sums", "data/test.jsonl", ROWS)
    fake_hub.github("us/sums", "data/test.jsonl", OTHER, "v2")
    assert fetch(SUMS, folder=tmp_path).read_bytes() == ROWS
    newer = GitHub("us/sums", "data/test.jsonl", revision="v2")
    assert fetch(newer, folder=tmp_path).read_bytes() == OTHER
    assert fetch(newer, folder=tmp_path).read_bytes() == OTHER


def test_file_copied_by_hand_is_accepted(dead_hub: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_bytes(ROWS)
    assert fetch(SUMS, folder=tmp_path).read_bytes() == ROWS
    (tmp_path / "test.jsonl").write_bytes(OTHER)
    assert OTHER_SHA256 in problem_of(SUMS, tmp_path)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (SUMS, "answered 404 (Not Found). Check that revision 'main' of us/sums has the file."),
        (HuggingFace("us/sums", "a.parquet", "v1"), "Check that revision 'v1' of dataset us/sums has the file."),
        (Url("https://example.org/a.zip"), "answered 404 (Not Found). Check the address."),
        (Url("https://example.org/"), "the address does not name a file."),
    ],
)
def test_missing_file_is_reported(fake_hub: FakeHub, tmp_path: Path, source: Source, advice: str) -> None:
    assert advice in problem_of(source, tmp_path)


def test_gated_dataset_asks_for_a_token(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub.huggingface("us/gated", "test.parquet", ROWS, is_gated=True)
    source = HuggingFace("us/gated", "test.parquet", gated=True)
    terms = (
        "Accept the terms on https://huggingface.co/datasets/us/gated, then set HF_TOKEN, or hf_token in env.yaml, "
    )
    problem = problem_of(source, tmp_path)
    assert "answered 401 (Access to the dataset is restricted." in problem
    assert problem.endswith(f"{terms}to that account's token.")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    problem = problem_of(source, tmp_path)
    assert "answered 403" in problem
    assert problem.endswith("account's token. The present token was not accepted.")
    assert "hf_wrong" not in problem
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch(source, folder=tmp_path).read_bytes() == ROWS


@pytest.mark.parametrize("source", [SUMS, HuggingFace("us/sums", "data/test.jsonl"), Url("https://example.org/a")])
def test_unreachable_host_is_reported_at_once(dead_hub: dict[str, str], tmp_path: Path, source: Source) -> None:
    problem = problem_of(source, tmp_path)
    assert problem.startswith("http://127.0.0.1:1/")
    assert "no connection to 127.0.0.1:1 (" in problem
    assert (
        f"NEMO_GYM_MIRROR{', or HF_ENDPOINT' if isinstance(source, HuggingFace) else ''}, or copy the file to "
        in problem
    )


def test_unknown_host_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "NEMO_GYM_MIRROR",
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    problem = problem_of(Url("http://no-such-host.invalid/a.zip"), tmp_path)
    assert problem.startswith("http://no-such-host.invalid/a.zip: the name of the host does not resolve.")


def test_offline_switch_of_the_hub_is_kept(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE forbids the download" in problem_of(HuggingFace("us/sums", "a.jsonl"), tmp_path)


def test_broken_record_is_reported(fake_hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl.source.json").write_text("{}")
    assert problem_of(SUMS, tmp_path).startswith(
        f"{tmp_path}/test.jsonl.source.json: not a valid record of a download."
    )


def test_mirror_without_scheme_is_named(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_MIRROR", "foo")
    with pytest.raises(
        DataError,
        match=r"^NEMO_GYM_MIRROR: 'foo' is not an http\(s\) URL\. Set the variable to a mirror's URL, or unset it",
    ):
        fetch(Url("https://example.org/a.bin"), folder=tmp_path)
    assert fake_hub.requests == []
