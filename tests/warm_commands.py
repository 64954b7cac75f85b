"""Run commands as their scripts would, each in a fork of this process, which has imported what takes them longest.

`python tests/warm_commands.py` reads a JSON line `{argv, cwd, env, out, err}` for each command, and answers with the
lines `{pid}` once it has begun and `{code}` once it has ended. It ends with its input.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

WARM = ("fastapi", "httptools", "httpx", "omegaconf", "orjson", "packaging.requirements", "pydantic", "rich.console",
        "rich.table", "uvicorn", "yaml")  # fmt: skip
"""Other people's packages only: that a command imports all that it needs of ours, and in an order that works, is seen
at each of its starts."""


def main() -> None:
    for name in WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _be(**json.loads(line))
        print(json.dumps({"pid": child}), flush=True)  # noqa: T201
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)  # noqa: T201


def _be(argv: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    """Be the command's process, to its end."""
    for number, file in enumerate((os.devnull, out, err)):
        opened = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).parent)
    code: Any = 1
    try:
        code = importlib.import_module("nemo_gym.cli.main").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # To tidy up after all of the imports would take longer than most commands do.
        os._exit(code)


if __name__ == "__main__":
    main()
