"""Datasets stored as generic packages of a GitLab project, through its HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

import httpx

from nemo_gym.config.masking import mask_text
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.http.redirects import client_of
from nemo_gym.http.tls import cause_of
from nemo_gym.jsonl import replacing

API = "/api/v"
"""A part of the path of each API address."""
TRACKING_SUFFIX = "/ml/mlflow"
"""The suffix of `mlflow_tracking_uri`. The part before it is the project's API address, the default `gitlab_url`."""

TIMEOUT_S = 600.0
REPLY_CHARACTERS_SHOWN = 300


class Project(NamedTuple):
    """A GitLab project and its access token."""

    url: str
    """The project's API address: `https://<host>/api/v4/projects/<number>`."""
    token: str

    @classmethod
    def of_config(cls, plain: Mapping[str, object]) -> Self:
        """Return the project named by `gitlab_url` and `gitlab_token`, or else by the MLflow settings.

        Raise `ConfigError` if a setting is missing, or if the address is not one of GitLab's API.
        """
        tracking = str(plain.get("mlflow_tracking_uri") or "")
        url = plain.get("gitlab_url") or tracking.rstrip("/").removesuffix(TRACKING_SUFFIX)
        token = plain.get("gitlab_token") or plain.get("mlflow_tracking_token")
        absent = [key for key, value in (("gitlab_url", url), ("gitlab_token", token)) if not value]
        if absent:
            raise ConfigError(
                f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing. Add to env.yaml the project's "
                "API address, which ends in /api/v4/projects/<number>, and a token for it."
            )
        # Check the address, because the project's web page answers every request, an upload too, with a sign-in page.
        if API not in str(url):
            key = "gitlab_url" if plain.get("gitlab_url") else "mlflow_tracking_uri"
            raise ConfigError(
                f"{key}: '{mask_text(str(url))}' is not the API address of a GitLab project. Write it like "
                "https://gitlab.example.com/api/v4/projects/1234."
            )
        return cls(str(url).rstrip("/"), str(token))

    def upload(self, file: Path, name: str, version: str) -> str:
        """Upload a file to a version of the package `name`, and return the file's name in the package."""
        with _failing_as(f"{file}: upload as {name} {version}"), self._client() as client, file.open("rb") as body:
            client.put(self.file(name, version, file.name), content=body).raise_for_status()
        return file.name

    def download(self, name: str, version: str, artifact: str, output: Path) -> None:
        """Download a file of a package to `output`, replacing it atomically."""
        output.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(output) as partial,
            _failing_as(f"dataset '{name}' {version}: download of {artifact}"),
            self._client() as client,
            client.stream("GET", self.file(name, version, artifact)) as reply,
        ):
            if reply.is_error:
                reply.read()
            reply.raise_for_status()
            with partial.open("wb") as file:
                for part in reply.iter_bytes():
                    file.write(part)

    def delete(self, name: str) -> int:
        """Delete all versions of a package, and return their number. Raise `DataError` if it is not found."""
        with _failing_as(f"dataset '{name}': deletion"), self._client() as client:
            # Read all pages first, because deletions move the packages of later pages to earlier ones.
            numbers = list(self._numbers_of(client, name))
            if not numbers:
                raise DataError(f"dataset '{name}': package not found in {self.url}. Check the name.")
            for number in numbers:
                client.delete(f"{self.url}/packages/{number}").raise_for_status()
        return len(numbers)

    def _numbers_of(self, client: httpx.Client, name: str) -> Iterator[int]:
        page = "1"
        while page:
            query = {"package_name": name, "per_page": "100", "page": page}
            found = client.get(f"{self.url}/packages", params=query).raise_for_status()
            # Compare the whole name, because GitLab also returns packages whose names merely contain this one.
            yield from (package["id"] for package in found.json() if package["name"] == name)
            page = found.headers.get("x-next-page", "")

    @property
    def headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": self.token}

    def _client(self) -> httpx.Client:
        return client_of(self.url, self.headers, TIMEOUT_S)

    def file(self, name: str, version: str, file: str) -> str:
        """Return the URL of a file in a package."""
        return f"{self.url}/packages/generic/{quote(name, safe='')}/{quote(version, safe='')}/{quote(file)}"


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError as error:
        body = error.response.text[:REPLY_CHARACTERS_SHOWN].strip()
        raise DataError(
            f"{what}: {error.request.method} {error.request.url} returned {error.response.status_code}: {body}"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DataError(f"{what}: request failed ({cause_of(error)}). Check gitlab_url.") from error
