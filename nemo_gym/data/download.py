"""Download one file over HTTP, with timeouts, retries, a progress bar on a terminal, and the SHA-256 of the file."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

import httpx

from nemo_gym.data import activity
from nemo_gym.errors import DataError
from nemo_gym.http.probe import resolves
from nemo_gym.http.redirects import client_of
from nemo_gym.http.retries import Backoff, seconds_of_retry_after
from nemo_gym.http.tls import cause_of
from nemo_gym.text import visible

CONNECT_S, SILENCE_S, LONGEST_S = 10.0, 60.0, 6 * 3600.0
"""Timeouts in seconds: to connect, between two chunks of a file, and for the whole file."""
TRIES = 5
BACKOFF = Backoff(first_s=0.5, factor=2, longest_s=120.0)
BUSY = HTTPStatus.TOO_MANY_REQUESTS
FIRST_SERVER_ERROR = 500
COMMIT_HEADER, REASON_HEADER = "x-repo-commit", "x-error-message"
"""Response headers of the Hugging Face Hub with the commit of a file, and with the reason for an error."""

logger = logging.getLogger(__name__)


class Downloaded(NamedTuple):
    """A downloaded file under a temporary name."""

    partial: Path
    sha256: str
    size: int
    commit: str | None = None
    """The commit of the file, if the Hugging Face Hub has sent it."""


class _Failed(Exception):
    """A failed attempt after which a retry may succeed."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@contextmanager
def downloaded(
    url: str,
    path: Path,
    *,
    headers: Mapping[str, str],
    advice: Mapping[int, str],
    otherwise: str,
    backoff: Backoff = BACKOFF,
) -> Iterator[Downloaded]:
    """Download a file next to `path`, and remove it at the end unless the caller has renamed it.

    If the download fails, raise `DataError`. Its message ends with the `advice` for the HTTP status. If there was no
    connection, or all retries failed, the message ends with `otherwise`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not resolves(url, CONNECT_S):
            raise DataError(f"{url}: the name of the host does not resolve. {otherwise}")
        yield _persistently(lambda: _once(url, partial, headers, advice), url, otherwise, backoff)
    finally:
        partial.unlink(missing_ok=True)


def _persistently(once: Callable[[], Downloaded], url: str, otherwise: str, backoff: Backoff) -> Downloaded:
    tries = 0
    while True:
        tries += 1
        try:
            return once()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            host = urlsplit(url).netloc
            raise DataError(f"{url}: no connection to {host} ({cause_of(error)}). {otherwise}") from error
        except _Failed as error:
            asked_s = error.retry_after_s or 0.0
            if tries == TRIES or asked_s > backoff.longest_s:
                asked = f" and asks for a pause of {asked_s:.0f} s" if asked_s else ""
                attempts = f" ({tries} tries)" if tries > 1 else ""
                raise DataError(f"{url}: {error}{attempts}{asked}. Try again later. {otherwise}") from error
            pause_s = backoff.pause_s(tries, asked_s)
            logger.warning("%s: %s; trying again in %.1f s", url, error, pause_s)
            time.sleep(pause_s)


def _once(url: str, partial: Path, headers: Mapping[str, str], advice: Mapping[int, str]) -> Downloaded:
    # Request an uncompressed reply, because the progress bar compares the written bytes with `content-length`.
    asked = {"Accept-Encoding": "identity"}
    timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
    try:
        with client_of(url, headers, timeout) as client, client.stream("GET", url, headers=asked) as reply:
            if reply.status_code != HTTPStatus.OK:
                _reject(url, reply, advice)
            commit = next(filter(None, (each.headers.get(COMMIT_HEADER) for each in (*reply.history, reply))), None)
            return _save(url, reply, partial)._replace(commit=commit)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol):
        raise
    except httpx.HTTPError as error:
        raise _Failed(f"the download was interrupted ({error or type(error).__name__})") from error


def _reject(url: str, reply: httpx.Response, advice: Mapping[int, str]) -> None:
    status = reply.status_code
    reason = reply.headers.get(REASON_HEADER) or reply.reason_phrase
    answered = f"{urlsplit(url).netloc} answered {status} ({reason})"
    if status == BUSY or status >= FIRST_SERVER_ERROR:
        raise _Failed(answered, seconds_of_retry_after(reply.headers.get("retry-after")))
    raise DataError(f"{url}: {answered}. {advice.get(status, 'Check the address.')}")


def _save(url: str, reply: httpx.Response, partial: Path) -> Downloaded:
    """Write the body of a reply to a file."""
    digest, size, began_at = hashlib.sha256(), 0, time.monotonic()
    total = int(reply.headers.get("content-length") or 0)
    with _progress(url, total) as show, _saving(partial) as file:
        # Do not pass a chunk size, so that the timeout is checked whenever data arrives.
        for part in reply.iter_bytes():
            digest.update(part)
            size += len(part)
            file.write(part)
            show(size)
            if time.monotonic() - began_at > LONGEST_S:
                raise DataError(f"{url}: the download took longer than {LONGEST_S / 3600:g} h. Use a faster network.")
    return Downloaded(partial, digest.hexdigest(), size)


@contextmanager
def _saving(partial: Path) -> Iterator[BinaryIO]:
    try:
        with partial.open("wb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{partial.parent}: the download cannot be saved here ({error.strerror}). Check the disk space."
        ) from error


@contextmanager
def _progress(url: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar if standard error is a terminal, otherwise log a line from time to time.

    Yield a function that is called with the number of bytes so far.
    """
    if not sys.stderr.isatty():
        activity.began()
        of = f" of {total / 1e6:.1f}" if total else ""
        yield lambda size: activity.show(f"{url}: {size / 1e6:.1f}{of} MB")
        return
    # Imported here because importing rich takes 0.1 s, and only a progress bar needs it.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(bar_width=None), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(visible(urlsplit(url).path.rpartition("/")[2]), total=total or None)

        def update(size: int) -> None:
            bar.update(task, completed=size)
            activity.seen()

        yield update
