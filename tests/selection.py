"""Which tests a change needs: the fast ones, and those slow ones that it can easily have broken.

`pytest --changed-since REVISION` leaves out the suites of `BORDERS`, the pages of the documentation and the tests
marked `slow`, unless the change touches what they depend on. A slow test depends on its folder and on the folder that
it mirrors: `tests/cli` on `nemo_gym/cli`. The mark `stands_on(path, …)` names something else for single tests. The
suites of `KEPT` always run.

One of `ONE_IN` files left out runs all the same. The number of commits chooses it: as many commits in a row run every
file, and one commit always runs the same files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGES = "tests/docs/test_pages.py"
ALWAYS = ("README.md",)
"""The page that every new user reads first."""
EVERYTHING = ("requirements",)
"""Beginnings of paths that all tests depend on. The locks change with the packages that pyproject.toml names."""
KEPT = ("tests/end_to_end/", "tests/faults/", "tests/rollouts/", "tests/security/", "tests/test_rewards_over_http.py")
"""Suites that run after every change: killed processes, faults, attacks, rewards, complete collections."""
BORDERS = {
    "tests/agents": ("nemo_gym/harness", "responses_api_agents/harness_agent"),
    "tests/borders": (
        "nemo_gym/cli/outside.py",
        "resources_servers/aviary",
        "resources_servers/openenv",
        "resources_servers/ors",
        "resources_servers/textgames",
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
"""Suites that need a cluster, an engine, a browser or another program's interface. Each runs if its own folder or one
of these has changed."""
ONE_IN = 6
"""One of so many files that a change does not need runs all the same."""
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


class Change:
    """What has changed since a revision, uncommitted changes included."""

    def __init__(self, since: str, repository: Path = REPOSITORY) -> None:
        self._repository = repository
        self._paths = self._git("diff", "--name-only", since).splitlines()
        self._turn = int(self._git("rev-list", "--count", "HEAD")) % ONE_IN

    def needs(self, test: str, stands_on: tuple[str, ...] = (), is_slow: bool = False) -> bool:
        """Return whether a test must run, by its ID and marks."""
        file, _, name = test.partition("::")
        if file == PAGES:
            return self.needs_page(name.partition("[")[2].rstrip("]"))
        suite = next((folder for folder in BORDERS if file.startswith(f"{folder}/")), None)
        if stands_on:
            needed = (file, *stands_on)
        elif suite:
            needed = (f"{suite}/", *BORDERS[suite])
        elif is_slow and not file.startswith(KEPT):
            needed = _mirrored(file)
        else:
            return True
        return self._touches((*EVERYTHING, *needed)) or self._is_its_turn(" ".join(stands_on) or file)

    def needs_page(self, page: str) -> bool:
        """Return whether a page of the documentation must run."""
        if page in ALWAYS or self._is_its_turn(page):
            return True
        text = (self._repository / page).read_text("utf-8")
        return self._touches((*EVERYTHING, "tests/docs/", page, *map(_as_path, NAMED.findall(text))))

    def _touches(self, beginnings: Iterable[str]) -> bool:
        starts = tuple(beginnings)
        return any(path.startswith(starts) for path in self._paths)

    def _is_its_turn(self, path: str) -> bool:
        return zlib.crc32(path.encode()) % ONE_IN == self._turn

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self._repository, capture_output=True, text=True, check=True).stdout


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
    # `python -m tests.selection REVISION FOLDER`: the exit code is 0 if the change needs a test of the folder.
    revision, folder = sys.argv[1:]
    files = [str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / folder).rglob("test_*.py")]
    sys.exit(0 if any(map(Change(revision).needs, files)) else 1)
