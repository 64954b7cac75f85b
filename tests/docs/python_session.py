"""Run the Python blocks of a page in one namespace, with `await` at the top level.

Reads JSON lines `{source, path, line}` and answers each with `{error}` at the file descriptor that it is given.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import sys
import traceback
import types


def main() -> None:
    # Modules of the page's folder, not of this one.
    sys.path[0] = ""
    page = types.ModuleType("page")
    sys.modules["page"] = page
    with os.fdopen(int(sys.argv[1]), "w") as replies, asyncio.Runner() as runner:
        for line in sys.stdin:
            error = run(page, runner, **json.loads(line))
            replies.write(json.dumps({"error": error}) + "\n")
            replies.flush()


def run(page: types.ModuleType, runner: asyncio.Runner, source: str, path: str, line: int) -> str:
    """Run one block, and return the traceback of its error, with the lines of the page."""
    try:
        # Empty lines, so that tracebacks have the numbers of the page.
        text = "\n" * (line - 1) + source
        code = compile(text, path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, page.__dict__)
        if inspect.iscoroutine(result):
            runner.run(result)
    except Exception:  # noqa: BLE001 - every error of a page is reported
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main()
