"""Task folders for tests."""

import json
import tempfile
from pathlib import Path
from typing import Any

from resources_servers.harbor.prepare import prepare

TOML = """
[verifier]
timeout_sec = {timeout_s}
[environment]
network_mode = "no-network"
workdir = "/app"
"""
REWARDED_IF = "#!/bin/bash\nif {condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"

ATTACK = """
mkdir -p /logs/verifier && echo 1 | tee /logs/verifier/reward.txt /tests/test.sh /solution/solve.sh /tmp/reward.txt
(while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt
 echo '{"reward": 1}' > /logs/verifier/reward.json; echo 1 > /app/again.txt; sleep 0.01; done) >/dev/null 2>&1 &
ln -s /logs /app/logs; ln -s / /app/root; mkdir -p /app/tests ~/.local; echo 'exit 0' > /app/tests/test.sh
cp /bin/true /app/cat; chmod 6755 /app/cat; echo 'export PATH=/app:$PATH' > /app/.bashrc; cp /app/.bashrc ~/.bashrc
echo 'import os; os.system("echo 1 > /logs/verifier/reward.txt")' | tee /app/sitecustomize.py > /app/conftest.py
mkfifo /app/pipe
"""
"""Commands of an agent that try to earn a reward without solving its task."""
IS_ATTACKED = "[ -e logs ] || [ -e root ] || [ -u cat ] || [ -e ~/.bashrc ] || [ -e /tmp/reward.txt ]"


def write_task(folder: Path, condition: str = "true", files: dict[str, str] | None = None, **more: object) -> Path:
    """Write a task and return its folder. The reward is 1 if the shell's `condition` holds in its working folder.

    `files` are those of the whole folder, by their path. `toml` replaces the `task.toml`, and `test` the `test.sh`.
    """
    texts = {
        "task.toml": more.get("toml", TOML.format(timeout_s=more.get("timeout_s", 60))),
        "instruction.md": more.get("instruction", "Do it.\n"),
        "environment/start.txt": "start\n",
        "tests/test.sh": more.get("test", REWARDED_IF.format(condition=condition)),
        **(files or {}),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
        path.chmod(0o755 if str(text).startswith("#!") else 0o644)
    return folder


def row_of(folder: Path) -> dict[str, Any]:
    """Return the row of a task's folder."""
    with tempfile.TemporaryDirectory() as made:
        return dict(json.loads(prepare(Path(made, "rows.jsonl"), str(folder)).read_text()))
