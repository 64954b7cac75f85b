"""Grade whether the program left a `calc.py` with which its test passes."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.harness import Collected

TEST_S = 100.0
TEST = "from calc import add\n\nassert add(2, 3) == 5\nprint('the test passed')\n"


class VerifyRequest(BaseVerifyRequest):
    workspace: Collected


def passes(code: str) -> bool:
    """Run the original test, because the program may have changed the one in its workspace."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "calc.py").write_text(code)
        Path(folder, "test_calc.py").write_text(TEST)
        command = [sys.executable, "test_calc.py"]
        tested = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TEST_S, check=False)
    return tested.stdout == "the test passed\n"


class RepairServer(SimpleResourcesServer):
    async def verify(self, body: VerifyRequest) -> float:
        return float(await asyncio.to_thread(passes, body.workspace.files.get("calc.py", "")))


if __name__ == "__main__":
    RepairServer.run_webserver()
