"""Run a `prepare.py`, in a separate Python environment if it needs packages that are not installed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym.config.view import HF_TOKEN_KEY_NAME, current_view, set_view
from nemo_gym.data import activity
from nemo_gym.data.permission import DownloadNeeded, downloads_allowed, may_download
from nemo_gym.data.scripts import Script, write_log
from nemo_gym.errors import DataError, LaunchError, UserError

LONGEST_S = 24 * 3600.0
"""The time limit of a script, in seconds."""
SETTING = "prepare_dependencies"

logger = logging.getLogger(__name__)


def run_script(script: Script, arguments: Mapping[str, object]) -> Path:
    """Run the script's `prepare(**arguments)` and return the path that it returns.

    If not all dependencies of the script are installed, run it in a separate Python environment that has them. Raise
    `DataError` if this environment cannot be made, or if the script fails.
    """
    python = _own_python(script.program, script.dependencies, script.log)
    if python:
        return _run_elsewhere(python, script, arguments)
    with activity.shown(str(script.program)):
        return script.run_here(arguments)


def _own_python(program: Path, dependencies: Sequence[str], log: Path) -> Path | None:
    """Return the Python of an environment with these dependencies, or None if this process has all of them.

    If the dependencies cannot be installed, write the end of the installer's output to the log and raise `DataError`.
    """
    if not dependencies:
        return None
    from nemo_gym.launcher.environments import environment_for
    from nemo_gym.launcher.requirements import Requirements

    try:
        requirements = Requirements.of_lines((each, f"{program}: {SETTING}") for each in dependencies)
    except LaunchError as error:
        raise DataError(str(error)) from error
    if not requirements.unmet():
        return None
    plain: Any = OmegaConf.to_container(current_view() or OmegaConf.create())
    try:
        return environment_for(program.parent, requirements, plain, notice=logger.warning)
    except LaunchError as error:
        logged = write_log(log, f"{error}\n", "end of the output")
        reason = str(error).strip().splitlines()[-1].strip()
        raise DataError(
            f"{program}: {SETTING}: {', '.join(dependencies)} could not be installed: {reason} Check the names and "
            f"the network, or install them here: pip install {' '.join(dependencies)}.{logged}"
        ) from error


def _run_elsewhere(python: Path, script: Script, arguments: Mapping[str, object]) -> Path:
    # Send the script's output to standard error, because standard output is for the result of the command.
    logger.warning("running %s in an environment of its own, %s …", script.program, python.parent.parent)
    given = {**script._asdict(), "arguments": arguments, "downloads": downloads_allowed()}
    config = current_view()
    token = config.get(HF_TOKEN_KEY_NAME) if config else None
    with tempfile.TemporaryDirectory(prefix="nemo_gym_prepare_") as work:
        asked, answer = Path(work, "asked.json"), Path(work, "answer.json")
        asked.write_text(json.dumps(given, default=str), "utf-8")
        try:
            finished = subprocess.run(
                [python, "-m", __name__, asked, answer], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False,
                env={**os.environ, **({"HF_TOKEN": str(token)} if token else {})}, timeout=LONGEST_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"{script.program}: it did not finish within {LONGEST_S / 3600:g} h. Check what it waits for."
            ) from error
        if not answer.is_file():
            raise DataError(
                f"{script.program}: its process ended with code {finished.returncode}, without a result. See the "
                "output above."
            )
        result = json.loads(answer.read_text("utf-8"))
    if "error" in result:
        raise (DownloadNeeded if result["is_download_needed"] else DataError)(result["error"])
    return Path(result["path"])


def _serve(asked: Path, answer: Path) -> None:
    """Run the script that the file `asked` describes, and write its result to the file `answer`."""
    given = json.loads(asked.read_text("utf-8"))
    # This process cannot load the command's configuration, so set one that has only the Hugging Face token. The script
    # may read the token with `get_hf_token`.
    set_view(OmegaConf.create({HF_TOKEN_KEY_NAME: os.environ.get("HF_TOKEN")}))
    arguments, downloads = given.pop("arguments"), given.pop("downloads")
    paths = {key: Path(given[key]) for key in ("program", "log")}
    try:
        with may_download(downloads), activity.shown(str(paths["program"])):
            path = Script(**{**given, **paths}).run_here(arguments)
        result: dict[str, object] = {"path": str(path)}
    except UserError as error:
        result = {"error": str(error), "is_download_needed": isinstance(error, DownloadNeeded)}
    answer.write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    _serve(*map(Path, sys.argv[1:]))
