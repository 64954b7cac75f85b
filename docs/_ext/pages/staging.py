"""The folder from which Sphinx builds: the written pages, READMEs of the servers, and what is made from the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from nemo_gym.metrics.meanings import SCORE_METRICS, VALUE_METRICS
from pages import api, catalog, commands, configuration, messages, records
from pages.links import relinked

MARKER = re.compile(r"^<!-- made from the code: ([\w. ]+) -->$", re.MULTILINE)
"""A line of a written page that is replaced by what the code says."""
MADE: dict[str, Callable[[Path], str]] = {
    "configuration": configuration.configuration,
    "configuration errors": messages.configuration_errors,
    "commands": lambda repository: commands.commands(),
    "spellings": lambda repository: commands.spellings(),
    "flag spellings": lambda repository: commands.flag_spellings(),
    "environments": catalog.environments,
    "properties": catalog.properties,
    "benchmarks": catalog.benchmarks,
    "agents": catalog.servers("responses_api_agents"),
    "models": catalog.servers("responses_api_models"),
    "run_record": lambda repository: records.run_record(),
    "ledger": lambda repository: records.ledger(),
    "call_sums": lambda repository: records.call_sums(),
    "trajectory": lambda repository: records.trajectory(),
    "value_metrics": lambda repository: records.metrics(VALUE_METRICS),
    "score_metrics": lambda repository: records.metrics(SCORE_METRICS),
    **{module: lambda repository, module=module: api.api(module) for module in api.MODULES},  # type: ignore[misc]
}
SERVERS = ("resources_servers", "responses_api_agents", "responses_api_models", "benchmarks")
OTHER_PAGES = {
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "data/README.md": "data/shared_rows.md",
}
FILES = "files"
"""The folder of the site for files of the repository that pages link to."""


class Stage:
    """The folder of all pages. Files that have not changed are left alone, so that Sphinx can reuse its work."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        self._written: set[Path] = set()
        self.page_of = {source: page for page, source in sources(repository).items()}

    def fill(self) -> None:
        """Write every page, and remove what an earlier build left."""
        for source, page in self.page_of.items():
            text = relinked(source.read_text("utf-8"), source, page, self.page_of, self._keep)
            self._write(page, MARKER.sub(lambda found: MADE[found[1]](self.repository), text).encode())
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self._written:
                path.unlink()

    def _keep(self, path: Path) -> str:
        """Copy a file of the repository to the site, and return its place there."""
        name = str(path.relative_to(self.repository))
        place = name.removeprefix("docs/") if name.startswith("docs/") else f"{FILES}/{name}"
        self._write(place, path.read_bytes())
        return place

    def _write(self, place: str, content: bytes) -> None:
        path = self.folder / place
        self._written.add(path)
        if path.is_file() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def sources(repository: Path) -> dict[str, Path]:
    """Return the pages of the site, each with the file that it is made from."""
    docs = repository / "docs"
    written = {
        str(path.relative_to(docs)): path
        for path in sorted(docs.rglob("*.md"))
        if not path.relative_to(docs).parts[0].startswith("_")
    }
    readmes = {
        f"{tier}/{path.parent.name}.md": path
        for tier in SERVERS
        for path in sorted((repository / tier).glob("*/README.md"))
    }
    if clashes := written.keys() & readmes.keys():
        raise SystemExit(f"docs/{min(clashes)} has the place of a README; rename it.")
    return written | readmes | {page: repository / name for name, page in OTHER_PAGES.items()}
