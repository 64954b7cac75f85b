"""`.ci/run` ends with the exit code of its last step, even if cleaning up finds no job to end."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parents[1] / ".ci" / "run").read_text()
CLEANUP = next(line for line in SCRIPT.splitlines() if line.startswith("trap "))


@pytest.mark.parametrize("job", ["", "sleep 60 &", "true & wait $!"])
@pytest.mark.parametrize(("last", "code"), [("true", 0), ("false", 1)])
def test_cleanup_keeps_the_exit_code(tmp_path: Path, job: str, last: str, code: int) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    lines = ["set -euo pipefail", f"logs={logs}", CLEANUP, job, last]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, logs.exists()) == (code, "", False)
