"""A client of the viewer's API over results that a test writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from starlette.testclient import TestClient

from nemo_gym.viewer.app import api_of
from nemo_gym.viewer.library import Library, RunView


def not_running(results: Path, verb: str, /, **arguments: object) -> dict[str, Any]:
    raise AssertionError("these tests do not control a collection")


class Api:
    """The API over the given paths."""

    def __init__(self, *paths: Path) -> None:
        self.library = Library(paths, cache=paths[0].parent / "cache")
        self.client = TestClient(api_of(self.library, not_running), raise_server_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.library.close()

    @property
    def run(self) -> str:
        """The id of the first run, whose files are indexed as they are now."""
        return self._indexed(self.library.runs()[0])

    def id_of(self, results: Path) -> str:
        return self._indexed(next(run for run in self.library.runs() if run.files.results == results.resolve()))

    def _indexed(self, run: RunView) -> str:
        run.refresh(wait_s=100)
        return run.id

    def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        response = self.client.get(f"/api/{path}", params={"run": self.run, **parameters})
        assert response.status_code == status, response.text
        return response.json()

    def rollout(self, task: int = 0, repeat: int = 0, **parameters: Any) -> Any:
        return self.get("rollout", task=task, repeat=repeat, **parameters)
