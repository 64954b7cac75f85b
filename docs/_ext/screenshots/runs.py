"""Real collections of the scripted models, in a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from screenshots.model import served
from screenshots.script import ENVIRONMENTS

FINISHED = ("step_000", "step_200", "step_400")
RUNNING = "step_600"
REPEATS = 8
PACE_S = 1.2
"""The scale of the time that a reply takes."""
PATIENCE_S = 300.0
NG = str(Path(sys.executable).with_name("ng"))
SERVERS = [
    *(word for name in ENVIRONMENTS for word in ("--resources-server", name)),
    "--model-type", "vllm_model/vllm_model_for_training",
]  # fmt: skip


@contextmanager
def collected(folder: Path) -> Iterator[None]:
    """Collect the finished runs, start one more, and let it run until the end of the block."""
    with served(PACE_S) as endpoint:
        for model in FINISHED:
            _collect(folder, model, endpoint, REPEATS)
        _collect(folder, RUNNING, endpoint, 100, "--detach")
        try:
            yield
        finally:
            subprocess.run([NG, "eval", "ctl", f"results/{RUNNING}.jsonl", "stop"], cwd=folder, check=True)
            # Its exit code is that of the stopped run.
            subprocess.run(
                [NG, "eval", "wait", f"results/{RUNNING}.jsonl", "--timeout-s", "60"], cwd=folder, check=False
            )


def _collect(folder: Path, model: str, endpoint: str, repeats: int, *words: str) -> None:
    settings = [
        f"+policy_base_url={endpoint}", "+policy_api_key=none", f"+policy_model_name={model}",
        "+observability_enabled=true", f"+model_call_capture_dir={folder}/calls",
    ]  # fmt: skip
    output = [
        "--split",
        "example",
        "--num-repeats",
        str(repeats),
        "--concurrency",
        "24",
        "--output",
        f"results/{model}.jsonl",
    ]
    subprocess.run(
        [NG, "eval", "run", *SERVERS, *output, *words, *settings], cwd=folder, check=True, timeout=PATIENCE_S
    )
