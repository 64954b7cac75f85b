"""A cluster, and runs that are submitted to it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.launcher.slurm.scheduler import HAS_ENDED
from nemo_gym.rollouts.control.calling import NotListening, ask
from nemo_gym.rollouts.control.registry import Collection
from tests.launcher.slurm.cluster import Cluster, missing_reason, wait_for
from tests.rows import line_count, rows_of

REPOSITORY = Path(__file__).parents[3]
NG = Path(sys.executable).with_name("ng")
PATIENCE_S = 200.0
ROWS = 5
REPEATS = 16
SECONDS = 0.5
"""Duration of a rollout, of which four run at once."""


@dataclass
class Run:
    """A run whose rollouts each take a fixed time."""

    cluster: Cluster
    endpoint: str
    output: Path
    job_id: str = ""
    planned: int = 0
    env: dict[str, str] = field(default_factory=dict)

    def submit(self, *words: str, repeats: int = REPEATS) -> Run:
        """Submit the run. Fail if that fails."""
        done = self.try_to_submit(*words, repeats=repeats)
        assert done.returncode == 0, done.stderr
        self.job_id = orjson.loads(done.stdout)["job_id"]
        return self

    def try_to_submit(self, *words: str, repeats: int = REPEATS) -> subprocess.CompletedProcess[str]:
        """Submit the run, and return what the command prints."""
        self.planned = ROWS * repeats
        return self.ng(
            *("submit", "--resources-server", "mcqa", "--model-type", "openai_model", "--split", "example"),
            *("--policy-base-url", f"{self.endpoint}/v1", "--policy-model-name", f"slow:{SECONDS}"),
            *("+policy_api_key=${oc.env:NGS_KEY}", "--output", str(self.output), "--cpus-per-node", "1"),
            *("--num-repeats", str(repeats), "--concurrency", "4", "--json", *words),
        )

    def ng(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run an ng command."""
        env = {**self.cluster.env, "NGS_KEY": "EMPTY"}
        return subprocess.run(
            [NG, *words], env=env, cwd=REPOSITORY, capture_output=True, check=False, text=True, timeout=PATIENCE_S
        )

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.stem}_slurm")

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    @property
    def record(self) -> dict[str, Any]:
        path = self.output.with_name(f"{self.output.stem}_run.json")
        return orjson.loads(path.read_bytes()) if path.exists() else {}

    def pause(self) -> None:
        """Pause the collection once a rollout is scored, so that it cannot end before the test goes on."""
        has_one = lambda: self.output.exists() and line_count(self.output) > 0  # noqa: E731
        wait_for(has_one, PATIENCE_S, lambda: f"no result. {self.log}")
        wait_for(lambda: self.control("pause"), PATIENCE_S, lambda: f"no collection listens. {self.log}")
        assert line_count(self.output) < self.planned, "it was too late to pause"

    def finish(self) -> None:
        """Run all remaining rollouts at once, and wait for the end of the job."""
        wait_for(lambda: self.control("resume"), PATIENCE_S, lambda: f"no collection listens. {self.log}")
        self.control("concurrency", wanted=self.planned)
        self.await_state("COMPLETED")

    def control(self, verb: str, **arguments: object) -> bool:
        """Ask the running collection, as `ng eval ctl` does on its node. Return False if it does not listen."""
        for path in self.folder.glob("control/*/collections/*.json"):
            with suppress(NotListening, FileNotFoundError):
                ask(Collection.model_validate_json(path.read_bytes()), verb, arguments)
                return True
        return False

    def await_state(self, *states: str) -> dict[str, str]:
        """Wait until the job has one of these states, and return its fields."""
        fields: dict[str, str] = {}

        def is_there() -> bool:
            fields.update(self.cluster.state(self.job_id))
            found = fields["JobState"]
            assert found in states or found not in HAS_ENDED, f"{found}: {self.log}"
            return found in states

        wait_for(is_there, PATIENCE_S, lambda: f"{fields['JobState']}. {self.log}")
        return fields

    def check_complete(self) -> None:
        """Check that each rollout is there exactly once."""
        rollouts = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows_of(self.output))
        assert len(rollouts) == rollouts.total() == self.planned, self.log
        outcomes = self.record["outcomes"]
        assert (outcomes["planned"], outcomes["scored"], outcomes["unresolved"]) == (self.planned, self.planned, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := missing_reason():
        pytest.skip(reason)
    with Cluster(nodes=6) as started:
        yield started


@pytest.fixture
def run(cluster: Cluster, endpoint: str, tmp_path: Path) -> Run:
    return Run(cluster, endpoint, tmp_path / "x.jsonl")
