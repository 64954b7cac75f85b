"""Datasets as generic packages of a GitLab project, by its HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from nemo_gym.errors import ConfigError, DataError

URL_KEY, TOKEN_KEY = "gitlab_url", "gitlab_token"
TRACKING_SUFFIX = "/ml/mlflow"
"""A project's experiment tracking lies below its API address, so `mlflow_tracking_uri` tells that as well."""

TIMEOUT_S = 600.0
TOLD_CHARACTERS = 300


class Project(NamedTuple):
    """A GitLab project, and the right to change it."""

    url: str
    """The project in the API: `https://<host>/api/v4/projects/<number>`."""
    token: str

    @classmethod
    def of_config(cls, plain: Mapping[str, Any]) -> Self:
        """The one that a configuration names by `gitlab_url` and `gitlab_token`, or for MLflow."""
        url = plain.get(URL_KEY) or str(plain.get("mlflow_tracking_uri") or "").rstrip("/").removesuffix(
            TRACKING_SUFFIX
        )
        token = plain.get(TOKEN_KEY) or plain.get("mlflow_tracking_token")
        absent = [key for key, value in ((URL_KEY, url), (TOKEN_KEY, token)) if not value]
        if absent:
            raise ConfigError(
                f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing. Write them into env.yaml: the "
                "project's address in the API, which ends in /api/v4/projects/<number>, and a token for it."
            )
        return cls(str(url).rstrip("/"), str(token))

    def upload(self, file: Path, name: str, version: str) -> str:
        """Put a file into a package, and say which file of it that is."""
        with _told(f"{file}: uploading it as {name} {version}"), self._client() as client, file.open("rb") as content:
            client.put(self._file(name, version, file.name), content=content).raise_for_status()
        return file.name

    def download(self, name: str, version: str, artifact: str, output: Path) -> None:
        """Write a file of a package to `output`, whole or not at all."""
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f".{output.name}.partial")
        url = self._file(name, version, artifact)
        try:
            with (
                _told(f"dataset '{name}' {version}: downloading {artifact}"),
                self._client() as client,
                client.stream("GET", url) as reply,
            ):
                if reply.is_error:
                    reply.read()
                reply.raise_for_status()
                with partial.open("wb") as file:
                    for part in reply.iter_bytes():
                        file.write(part)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)

    def delete(self, name: str) -> int:
        """Delete every version of a package, and say how many there were. Raises `DataError` where there is none."""
        with _told(f"dataset '{name}': deleting it"), self._client() as client:
            found = client.get(f"{self.url}/packages", params={"package_name": name, "per_page": 100})
            found.raise_for_status()
            # GitLab finds by part of the name.
            numbers = [package["id"] for package in found.json() if package["name"] == name]
            if not numbers:
                raise DataError(f"dataset '{name}': there is no package of this name in {self.url}.")
            for number in numbers:
                client.delete(f"{self.url}/packages/{number}").raise_for_status()
        return len(numbers)

    def _client(self) -> httpx.Client:
        return httpx.Client(headers={"PRIVATE-TOKEN": self.token}, timeout=TIMEOUT_S, follow_redirects=True)

    def _file(self, name: str, version: str, file: str) -> str:
        return f"{self.url}/packages/generic/{quote(name, safe='')}/{quote(version, safe='')}/{quote(file)}"


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Tell the user of a call that failed."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        said = error.response.text[:TOLD_CHARACTERS].strip()
        raise DataError(
            f"{what}: {error.request.method} {error.request.url} answered {error.response.status_code}: {said}"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DataError(f"{what}: no answer ({error}). Check {URL_KEY}.") from error
