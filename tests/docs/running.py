"""Run a page: its blocks in order, in a fresh folder, with a real shell, real servers and a Python interpreter."""

from __future__ import annotations

import shutil
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import orjson
import psutil
import yaml

from tests.conftest import PATIENCE_S, PROGRESS, SCRIPTS, Workplace
from tests.docs.commands import Shown, commands_of
from tests.docs.comparing import difference, matches
from tests.docs.dry_run import check_block, is_ours
from tests.docs.pages import COMMANDS, REPOSITORY, Block, Page
from tests.docs.ports import Ports
from tests.docs.shell import POLL_S, NotInTimeError, PythonSession, Result, Shell

OFFLINE = "http://127.0.0.1:9"
"""A proxy that refuses connections, so that a page cannot depend on another host."""
SETTINGS_OF_CI = ("CI", "BUILD_NUMBER")
"""Variables by which pytest prints more than it does for the reader of a page."""
PARSERS = {
    "json": orjson.loads,
    "jsonl": lambda text: [orjson.loads(line) for line in text.splitlines()],
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}
COLD = ("docs/servers/collecting.md", "docs/tutorials/environments.md")
"""Pages whose commands are processes of their own, because they print where a command is, or start it once more."""
IN_A_CLONE = ("configs", "examples")
"""Folders that only a clone has. The others belong to the package, and are found from any folder."""


def environment(page: Page, workplace: Workplace, endpoint: str) -> dict[str, str]:
    """Return the variables of a page's shell."""
    env = workplace.env | {"COLUMNS": "120", "PYTHONUNBUFFERED": "1", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    warm = "" if page.name in COLD else f"{workplace.warm.scripts}:"
    env["PATH"] = f"{warm}{SCRIPTS}:{env['PATH']}"
    for name in SETTINGS_OF_CI:
        env.pop(name, None)
    env |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), OFFLINE)
    env |= dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    return env | ({"ENDPOINT": f"{endpoint}/v1"} if endpoint else {})


class Run:
    """One run of a page."""

    def __init__(self, page: Page, workplace: Workplace, endpoint: str, timeout_s: float) -> None:
        self._page, self._folder, self._timeout_s = page, workplace.folder, timeout_s
        self._env = environment(page, workplace, endpoint)
        self._outputs = Path(mkdtemp(dir=workplace.env["XDG_RUNTIME_DIR"]))
        self._ports = Ports([block.text for block in page.blocks if not block.not_run])
        self._shell = Shell(self._folder, self._env, self._outputs)
        self._python: PythonSession | None = None

    def block(self, block: Block) -> None:
        """Run, write or parse one block."""
        if block.language in PARSERS:
            self._parse(block)
        if block.file:
            file = self._folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._ports.in_text(block.text), "utf-8")
        elif block.language in COMMANDS:
            for shown in commands_of(self._page, block):
                self._command(shown)
        elif block.language == "python":
            self._run_python(block)

    def _parse(self, block: Block) -> None:
        try:
            PARSERS[block.language](block.text)
        except (ValueError, yaml.YAMLError) as error:
            raise self._page.error(block.line, f"invalid {block.language}: {error}") from error

    def _run_python(self, block: Block) -> None:
        self._python = self._python or PythonSession(self._folder, self._env, self._outputs)
        try:
            source = self._ports.in_text(block.text)
            error = self._python.run(source, self._page.path, block.line, self._timeout_s)
        except NotInTimeError as late:
            raise self._page.error(block.line, f"the block {late}.") from late
        if error:
            raise self._page.error(block.line, f"the block fails:\n{error}")

    def _command(self, shown: Shown) -> None:
        command = self._ports.in_command(shown.text)
        try:
            result = self._shell.run(command, self._timeout_s)
        except NotInTimeError as late:
            raise self._page.error(shown.line, f"`{shown.text}` {late}.") from late
        if shown.is_background:
            self._wait_for_output(shown, result)
        elif result.code != shown.exit_code:
            what = f"exit code {result.code}, not {shown.exit_code}"
            raise self._page.error(shown.line, f"`{shown.text}`: {what}. Output:\n{self._printed(result)}")
        elif shown.output and not self._matches(shown, result):
            raise self._differs(shown, result)

    def _wait_for_output(self, shown: Shown, result: Result) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self._matches(shown, result, is_begin=True):
            if time.monotonic() > deadline:
                raise self._differs(shown, result)
            time.sleep(POLL_S)

    def _matches(self, shown: Shown, result: Result, *, is_begin: bool = False) -> bool:
        printed = self._printed(result)
        return matches(shown.output, printed, numbers_differ=shown.numbers_differ, is_begin=is_begin)

    def _differs(self, shown: Shown, result: Result) -> Exception:
        lines = difference(shown.output, self._printed(result))
        return self._page.error(shown.line, f"`{shown.text}` prints something else:\n{lines}")

    def _printed(self, result: Result) -> str:
        text = result.output.read_text("utf-8", errors="replace") if result.output.exists() else ""
        return self._ports.as_shown(PROGRESS.sub("", text))

    def close(self) -> None:
        if self._python is not None:
            self._python.close()
        self._shell.close()


def run_page(page: Page, workplace: Workplace, *, endpoint: str = "", timeout_s: float = PATIENCE_S) -> None:
    """Run all blocks of a page. Raise `PageError` for the first one that is not as the page says."""
    if "clone" in page.needs:
        for name in IN_A_CLONE:
            shutil.copytree(REPOSITORY / name, workplace.folder / name)
        (workplace.folder / ".venv").symlink_to(sys.prefix)
    absent = {"gpu", "hub"} if find_spec("ray") else {"gpu", "hub", "ray"}
    needs_more = bool(page.needs & absent)
    with _running(page, workplace, endpoint, timeout_s) as run:
        for block in page.blocks:
            if block.language in (*COMMANDS, "python") and (block.not_run or needs_more) and not block.file:
                _check(page, block, workplace)
            else:
                run.block(block)


@contextmanager
def _running(page: Page, workplace: Workplace, endpoint: str, timeout_s: float) -> Iterator[Run]:
    run = Run(page, workplace, endpoint, timeout_s)
    try:
        yield run
        _end_servers(page, workplace)
    finally:
        run.close()


def _end_servers(page: Page, workplace: Workplace) -> None:
    """End what the page has left running, as a user would with Ctrl-C."""
    # The shell and the interpreter of Python end in `close`.
    started = [each for each in workplace.processes() if _is_command_of_ours(each, workplace.warm.scripts)]
    for each in started:
        each.terminate()
    if psutil.wait_procs(started, timeout=PATIENCE_S)[1]:
        raise page.error(1, f"servers have not ended within {PATIENCE_S:g} s after SIGTERM.")


def _is_command_of_ours(process: psutil.Process, scripts: Path) -> bool:
    # A process may end meanwhile.
    with suppress(psutil.Error):
        # Skip the script of a warm command, because it would pass a second signal on to the command.
        return any(is_ours(word) and Path(word).parent != scripts for word in process.cmdline()[:3])
    return False


def _check(page: Page, block: Block, workplace: Workplace) -> None:
    for words in check_block(page, block):
        validated = workplace.run("ng", "env", "validate", *words)
        if validated.code:
            raise page.error(block.line, f"ng env validate {' '.join(words)}:\n{validated.err}")
