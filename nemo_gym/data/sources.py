"""Download public files from GitHub, the Hugging Face Hub or elsewhere once, and verify their hash in later runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from nemo_gym.data import huggingface
from nemo_gym.data.download import Downloaded, downloaded
from nemo_gym.data.permission import DownloadNeeded, downloads_allowed
from nemo_gym.data.sidecars import SOURCE_KIND, read_sidecar, sha256_of, sidecar_of, write_sidecar
from nemo_gym.errors import DataError

MIRROR_ENV_VAR = "NEMO_GYM_MIRROR"
"""The environment variable with the base URL of a mirror. The mirror has a folder for each host.

For example, it has `<mirror>/raw.githubusercontent.com/…`."""
HUGGINGFACE = "https://huggingface.co"


@dataclass(frozen=True)
class GitHub:
    """A file of a GitHub repository."""

    repo: str
    """`owner/name`."""
    path: str
    revision: str = "main"
    """A branch, a tag or a commit."""
    sha256: str | None = None

    @property
    def url(self) -> str:
        """The file's URL on the original host, also if a mirror is configured."""
        return f"https://raw.githubusercontent.com/{self.repo}/{quote(self.revision)}/{quote(self.path)}"


@dataclass(frozen=True)
class HuggingFace:
    """A file of a dataset on the Hugging Face Hub."""

    repo: str
    """`organization/name`."""
    path: str
    revision: str = "main"
    """A branch, a tag or a commit."""
    sha256: str | None = None
    gated: bool = False
    """Whether only accounts that have accepted the dataset's terms can download the file."""

    @property
    def url(self) -> str:
        """The file's URL on the original host, also if a mirror is configured."""
        return f"{HUGGINGFACE}/datasets/{self.repo}/resolve/{quote(self.revision, safe='')}/{quote(self.path)}"


@dataclass(frozen=True)
class Url:
    """A file at a URL, for sources other than GitHub and the Hugging Face Hub."""

    url: str
    sha256: str | None = None


Source = GitHub | HuggingFace | Url


class Record(NamedTuple):
    """The contents of `<file>.source.json`: the origin of a file, and its hash."""

    address: str
    """The file's original address, even if it was downloaded from a mirror."""
    revision: str | None
    """The commit that the hub reported, or else the revision of the source."""
    sha256: str
    size: int
    date: str


def fetch(source: Source, *, folder: Path) -> Path:
    """Return the path of a source's file in `folder`. Download the file if it is not there yet.

    `<file>.source.json` records the file's SHA-256. Later calls verify it. Raise `DataError` if the file cannot be
    downloaded, or if its hash differs from the source's `sha256`, or from the recorded hash if `sha256` is None. A
    file that was copied there by hand is accepted. Gated datasets need a token: HF_TOKEN, or hf_token in the
    configuration.
    """
    return fetch_to(source, folder / name_of(source))


def fetch_to(source: Source, path: Path, *, headers: Mapping[str, str] | None = None) -> Path:
    """Do the same as `fetch`, but save the file as `path`.

    `headers` are for a private server. If they are given, no mirror is used.
    """
    record = read_record(path)
    is_about_another = record is not None and record.address != source.url
    if path.is_file() and not is_about_another:
        found = sha256_of(path)
        _check(source, record, found, path, path)
        if record is None:
            write_sidecar(path, SOURCE_KIND, _record(source, found, path.stat().st_size, None)._asdict())
        return path
    address = source.url if headers else address_of(source)
    if not downloads_allowed():
        raise DownloadNeeded(f"It comes from {address}{size_note(source, path)}.")
    with _downloaded(source, path, address, headers) as got:
        _check(source, None if is_about_another else record, got.sha256, path, address)
        got.partial.replace(path)
        write_sidecar(path, SOURCE_KIND, _record(source, got.sha256, got.size, got.commit)._asdict())
    return path


def size_note(source: Source, path: Path) -> str:
    """Return the size of the file at its last download from this source, in parentheses, or "" if there was none."""
    record = read_record(path)
    return f" ({sized(record.size)})" if record and record.address == source.url else ""


def sized(count: float) -> str:
    """Return a number of bytes as text, such as `2.3 MB`."""
    units = ("B", "kB", "MB", "GB")
    power = next((power for power in range(3) if count < 1000 ** (power + 1)), 3)
    return f"{count / 1000**power:.3g} {units[power]}"


def name_of(source: Source) -> str:
    """Return the name of a source's file. Raise `DataError` if the source's path is empty or ends with a slash."""
    path = urlsplit(source.url).path if isinstance(source, Url) else source.path
    name = path.rpartition("/")[2]
    if not name:
        raise DataError(f"{source.url}: the address does not name a file. Give the address of a file.")
    return name


def hub_address() -> str:
    """Return the address of the Hugging Face Hub, or of the mirror in the environment variable HF_ENDPOINT."""
    return (os.environ.get(huggingface.ENDPOINT) or HUGGINGFACE).rstrip("/")


def address_of(source: Source) -> str:
    """Return the address from which to download a source's file. The address may be on a mirror."""
    url = source.url
    if isinstance(source, HuggingFace) and os.environ.get(huggingface.ENDPOINT):
        return url.replace(HUGGINGFACE, hub_address(), 1)
    mirror = os.environ.get(MIRROR_ENV_VAR)
    if not mirror:
        return url
    if not mirror.startswith(("http://", "https://")):
        raise DataError(
            f"{MIRROR_ENV_VAR}: '{mirror}' is not an http(s) URL. Set the variable to a mirror's URL, or unset it."
        )
    parts = urlsplit(url)
    return f"{mirror.rstrip('/')}/{parts.netloc}{parts.path}{f'?{parts.query}' if parts.query else ''}"


def _downloaded(
    source: Source, path: Path, address: str, headers: Mapping[str, str] | None
) -> AbstractContextManager[Downloaded]:
    advice = {404: "Check the address."}
    if isinstance(source, HuggingFace):
        if huggingface.is_forbidden():
            raise DataError(
                f"{address}: the environment variable {huggingface.OFFLINE} forbids the download. Unset it."
            )
        token = huggingface.token_of_process()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        missing = f"Check that revision '{source.revision}' of dataset {source.repo} has the file."
        advice = {404: missing, **dict.fromkeys((401, 403), _advice_if_forbidden(source, token))}
    elif isinstance(source, GitHub):
        advice = {404: f"Check that revision '{source.revision}' of {source.repo} has the file."}
    return downloaded(address, path, headers=headers or {}, advice=advice, otherwise=_otherwise(source, path))


def _otherwise(source: Source, path: Path) -> str:
    other = f", or {huggingface.ENDPOINT}" if isinstance(source, HuggingFace) else ""
    return f"Check the network, name a mirror with {MIRROR_ENV_VAR}{other}, or copy the file to {path}."


def _advice_if_forbidden(source: HuggingFace, token: str | None) -> str:
    page, setting = f"{HUGGINGFACE}/datasets/{source.repo}", f"set {huggingface.TOKEN}, or hf_token in env.yaml,"
    terms = f"Accept the terms on {page}, then" if source.gated else f"To read {page},"
    todo = f"{terms} {setting} to {'that account' if source.gated else 'an account'}'s token"
    return f"{todo}. The present token was not accepted." if token else f"{todo}."


def _check(source: Source, record: Record | None, found: str, path: Path, where: Path | str) -> None:
    """Raise `DataError` if the hash `found` is not the expected one. `where` is the file or URL with this hash."""
    file = sidecar_of(path, SOURCE_KIND)
    is_here = where == path
    if source.sha256 and found != source.sha256.lower():
        advice = (
            f"Delete {path} to download it again."
            if is_here
            else "The file at this address has changed. Inspect it and pin its new hash, or name the old revision."
        )
        raise DataError(f"{where}: its SHA-256 is {found}, but {source.sha256.lower()} is pinned. {advice}")
    if record is not None and not source.sha256 and found != record.sha256:
        advice = (
            f"Delete {path} to download it again, or {file} to keep the new content."
            if is_here
            else f"The file at this address has changed. To accept the new content, delete {file}."
        )
        raise DataError(
            f"{where}: its SHA-256 is {found}, but {file} recorded {record.sha256} on {record.date[:10]}. {advice}"
        )


def _record(source: Source, sha256: str, size: int, commit: str | None) -> Record:
    revision = commit or getattr(source, "revision", None)
    return Record(source.url, revision, sha256, size, datetime.now(UTC).isoformat(timespec="seconds"))


def read_record(path: Path) -> Record | None:
    """Return the record about a file, or None if it does not exist. Raise `DataError` if the record is not valid."""
    try:
        fields = read_sidecar(path, SOURCE_KIND)
        return None if fields is None else Record(**{name: fields[name] for name in Record._fields})
    except (ValueError, KeyError) as error:
        file = sidecar_of(path, SOURCE_KIND)
        raise DataError(
            f"{file}: not a valid record of a download. Delete the record and {path.name} to download it again."
        ) from error
