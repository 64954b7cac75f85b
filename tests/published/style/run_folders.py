"""Run each folder's tests in a fork with the heavy imports done: `run_folders.py ROOT HIDDEN FOLDER…`.

HIDDEN is a module that the tests must not import. Prints a JSON line per folder: `{folder, code, output}`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

OPTIONS = [
    "-q", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto",
    "-o", "asyncio_default_fixture_loop_scope=function",
]  # fmt: skip
WARM = (
    "_pytest.junitxml",
    "anyio._backends._asyncio",
    "fastapi.testclient",
    "nemo_gym.base_resources_server",
    "nemo_gym.base_responses_api_agent",
    "nemo_gym.base_responses_api_model",
    "nemo_gym.openai_utils",
    "nemo_gym.verifier_fixture",
    "pdb",
    "pydantic.v1",
    "pytest_asyncio.plugin",
    "resources_servers.gymnasium",
)


def main() -> None:
    root, hidden, *folders = sys.argv[1:]
    sys.modules[hidden] = None  # type: ignore[assignment]
    # Loading unused plugins would take most of the time.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in WARM:
        importlib.import_module(name)
    # pytest collects garbage at its end; exclude the modules shared by all forks.
    gc.freeze()
    for folder in folders:
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                _test(Path(root), folder, output.fileno())
            _, status = os.waitpid(child, 0)
            output.seek(0)
            printed = output.read().decode()
        print(json.dumps({"folder": folder, "code": os.waitstatus_to_exitcode(status), "output": printed}), flush=True)  # noqa: T201


def _test(root: Path, folder: str, output: int) -> None:
    """Run one folder's tests in this process, with the folder first on the path, and exit."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 70
    try:
        import pytest

        os.chdir(root / folder)
        sys.path[:0] = [str(root / folder), str(root)]
        code = pytest.main([*OPTIONS, f"--rootdir={root / folder}", "tests"])
    except BaseException:  # noqa: BLE001 - printed before this process exits
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
