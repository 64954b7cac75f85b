"""Which tests run after a change: the fast ones, and as many of the slow ones as fit into a number of seconds.

`pytest --changed-since REVISION --within SECONDS` runs all fast tests. The others are the tests marked `slow`, the
suites of `BORDERS` and the pages of the documentation: of these, whole files run until their recorded seconds
(tests/costs.json) fill the given ones, in this order: the suites of `KEPT`; files that have changed themselves; those
whose subject has changed; the rest. A slow test depends on its folder and on the folder that it mirrors, such as
`nemo_gym/cli` for `tests/cli`. The mark `stands_on(path, …)` names something else for single tests.

The number of commits decides with which file each of the four groups begins, so that commits in a row run others, and
one commit always runs the same files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from tests.costs import LEAST_S, recorded

REPOSITORY = Path(__file__).parents[1]
PAGES = "tests/docs/test_pages.py"
ALWAYS = ("README.md",)
"""The page that every new user reads first."""
EVERYTHING = ("requirements",)
"""Beginnings of paths that all tests depend on. The locks change with the packages that pyproject.toml names."""
KEPT = ("tests/end_to_end/", "tests/faults/", "tests/rollouts/", "tests/security/", "tests/test_rewards_over_http.py")
"""Suites that come first after every change: killed processes, faults, attacks, rewards, complete collections."""
BORDERS = {
    "tests/agents": ("nemo_gym/harness", "resources_servers/harbor", "responses_api_agents/harness_agent"),
    "tests/borders": (
        "nemo_gym/cli/outside.py",
        "examples/inspect_task",
        "resources_servers/aviary",
        "resources_servers/harbor",
        "resources_servers/openenv",
        "resources_servers/ors",
        "resources_servers/textgames",
        "responses_api_agents/inspect_agent",
        "responses_api_agents/verifiers_agent",
    ),
    "tests/cluster": ("nemo_gym/launcher", "nemo_gym/process"),
    "tests/containers": ("containers", "nemo_gym/launcher/kubernetes", "nemo_gym/sandbox", "Makefile"),
    "tests/launcher/kubernetes": ("containers", "nemo_gym/launcher"),
    "tests/engines": (
        "responses_api_models/vllm_model",
        "responses_api_models/local_vllm_model",
        "examples",
        "Makefile",
    ),
    "tests/frameworks": ("docs/training", "examples", "nemo_gym/capture", "nemo_gym/training"),
    "tests/published": (
        "nemo_gym/calls",
        "nemo_gym/config",
        "nemo_gym/http",
        "nemo_gym/published",
        "nemo_gym/schemas",
        "nemo_gym/servers",
    ),
    "tests/launcher/slurm": ("nemo_gym/launcher",),
    "tests/viewer": ("nemo_gym/records", "nemo_gym/viewer", "viewer"),
}
"""Suites that need a cluster, an engine, a browser or another program's interface, and what else they depend on."""
GOLDEN = 0.618
"""The share of a round by which each commit turns it: successive ones lie far apart."""
NAMED = re.compile(
    r"nemo_gym(?:\.\w+)+"
    r"|(?:nemo_gym|resources_servers|responses_api_agents|responses_api_models|benchmarks|configs|examples)/[\w/.-]+"
    r"|--(?:resources-server|benchmark|agent-type|model-type)[ =]\w+"
)
"""How a page names a module, a folder or a shipped server."""
FOLDERS = {
    "--resources-server": "resources_servers",
    "--benchmark": "benchmarks",
    "--agent-type": "responses_api_agents",
    "--model-type": "responses_api_models",
}


class Rank(IntEnum):
    """How much a change needs a test that does not always run. The lowest run first."""

    KEPT = 0
    CHANGED = 1
    TOUCHED = 2
    UNTOUCHED = 3


class Part(NamedTuple):
    """Tests that run together or not at all: slow ones of a file, a page, or tests with the same mark `stands_on`."""

    path: str
    """Of a test file or of a page."""
    stands_on: tuple[str, ...] = ()


class Change:
    """What has changed since a revision, uncommitted changes included."""

    def __init__(self, since: str, repository: Path = REPOSITORY) -> None:
        self._repository = repository
        self._paths = self._git("diff", "--name-only", since).splitlines()
        self._turn = int(self._git("rev-list", "--count", "HEAD"))

    def chosen(self, seconds: Mapping[Part, float], within: float) -> set[Part]:
        """Return the parts that run, by the seconds that each takes. The first one runs however long it takes."""
        chosen, left = set[Part](), within
        for part in sorted(seconds, key=lambda part: (self.rank(part), self._place(part))):
            if not chosen or seconds[part] <= left:
                chosen.add(part)
                left -= seconds[part]
        return chosen

    def rank(self, part: Part) -> Rank:
        """Return how much this change needs a part."""
        if part.path.startswith(KEPT) and not part.stands_on:
            return Rank.KEPT
        if self._touches([part.path]):
            return Rank.CHANGED
        return Rank.TOUCHED if self._touches([*EVERYTHING, *self._needed(part)]) else Rank.UNTOUCHED

    def _needed(self, part: Part) -> Iterable[str]:
        path, stands_on = part
        if stands_on:
            return stands_on
        if path.endswith(".md"):
            text = (self._repository / path).read_text("utf-8")
            return ("tests/docs/", *map(_as_path, NAMED.findall(text)))
        suite = next((folder for folder in BORDERS if path.startswith(f"{folder}/")), None)
        return (f"{suite}/", *BORDERS[suite]) if suite else _mirrored(path)

    def _touches(self, beginnings: Iterable[str]) -> bool:
        starts = tuple(beginnings)
        return any(path.startswith(starts) for path in self._paths)

    def _place(self, part: Part) -> float:
        return (zlib.crc32(" ".join([part.path, *part.stands_on]).encode()) / 2**32 - self._turn * GOLDEN) % 1

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self._repository, capture_output=True, text=True, check=True).stdout


def part_of_test(test: str, stands_on: tuple[str, ...] = (), is_slow: bool = False) -> Part | None:
    """Return the part of a test, by its ID and marks, or None if it always runs."""
    file, _, name = test.partition("::")
    if file == PAGES:
        page = name.partition("[")[2].rstrip("]")
        return None if page in ALWAYS else Part(page)
    if stands_on or is_slow or file.startswith(tuple(f"{folder}/" for folder in BORDERS)):
        return Part(file, stands_on)
    return None


def _mirrored(file: str) -> tuple[str, ...]:
    """Return the folders of a test and of what it mirrors: a shipped server, or a part of the package."""
    parts = Path(file).parts
    if parts[0] != "tests":
        return (f"{parts[0]}/{parts[1]}/",)
    return (f"tests/{parts[1]}", f"nemo_gym/{parts[1]}/")


def _as_path(named: str) -> str:
    """Return the path of what a page names: `nemo_gym.grading`, `configs/x.yaml` or `--benchmark gpqa`."""
    flag, _, name = named.replace("=", " ").partition(" ")
    if name:
        return f"{FOLDERS[flag]}/{name}/"
    return named.replace(".", "/") if named.startswith("nemo_gym.") else named


if __name__ == "__main__":
    # `python -m tests.selection REVISION SECONDS FILE…` prints which of these files of slow tests run.
    revision, within, *files = sys.argv[1:]
    costs = recorded()
    chosen = Change(revision).chosen({Part(file): costs.get(file, LEAST_S) for file in files}, float(within))
    sys.stdout.writelines(f"{part.path}\n" for part in sorted(chosen))
