"""The command `ng view`, which shows rollouts in a browser or writes them to a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pydantic import Field, PositiveInt

from nemo_gym.cli import printing
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import CommandSettings
from nemo_gym.errors import DataError, UsageError
from nemo_gym.paths import resolved
from nemo_gym.text import counted
from nemo_gym.viewer.library import Library, library_of
from nemo_gym.viewer.report import write_report
from nemo_gym.viewer.selection import Selection, write_selection
from nemo_gym.viewer.serve import serve

USUAL_FOLDER = Path("results")
USUAL_LIMIT = 200


class ViewSettings(CommandSettings):
    """Parameters of `ng view`."""

    paths: list[Path] = Field(default_factory=list)
    """Files of rollouts, or folders with runs. Default: `results`, or else the working folder."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """The port. Default: a free one."""
    host: str = "127.0.0.1"
    """The address to listen on. Warning: on any but a loopback address, others can read the traffic, because it is not
    encrypted. Prefer a tunnel, such as ssh -L."""
    no_open: bool = False
    """Print the address without opening a browser."""
    tokenizer: str | None = None
    """The tokenizer for the text of tokens: a folder, or the address of an engine with /detokenize. Default: that of
    the model in the Hugging Face cache."""
    export: Path | None = None
    """Write one HTML file that shows the rollouts without a server, and exit."""
    jsonl: Path | None = None
    """Write the selected rollouts to this file as JSON lines, and exit."""
    filter: str = ""
    """The rollouts for --export and --jsonl, as a query like that in the page's address, such as
    'outcome=failed&tool=search'."""
    limit: PositiveInt | None = None
    """How many rollouts of each run --export and --jsonl write. Rollouts are ordered by task, unless the filter has
    `sort=reward`. Default: 200 with --export, otherwise all."""
    overwrite: bool = False
    """Replace the file of --export or --jsonl."""


def view(words: list[str]) -> int:
    """Look at rollouts in a browser, or write some of them to a file."""
    summary = "Look at rollouts in a browser: ng view [PATH …]. The files are only read, and they may still grow."
    settings = Options("ng_view", ViewSettings, summary, takes_config=False, named_by="paths").settings(words)
    output = settings.export or settings.jsonl
    if settings.export and settings.jsonl:
        raise UsageError("--export and --jsonl: pass only one of them.")
    if not output and (settings.filter or settings.limit):
        raise UsageError("--filter and --limit choose what --export or --jsonl writes. Pass --export or --jsonl, too.")
    limit = settings.limit or (USUAL_LIMIT if settings.export else None)
    selection = Selection.parse(settings.filter, limit)
    paths = settings.paths or [USUAL_FOLDER if USUAL_FOLDER.is_dir() else Path()]
    with closing(library_of(paths)) as library:
        library.tokenizer = settings.tokenizer
        if output:
            _check_output(library, output, overwrite=settings.overwrite)
        if settings.export:
            _export(library, selection, settings.export)
        elif settings.jsonl:
            written = write_selection(library, selection, settings.jsonl)
            printing.say(f"{settings.jsonl}: {counted(written, 'rollout')}")
        else:
            opens_browser = not settings.no_open
            serve(library, host=settings.host, port=settings.port or 0, opens_browser=opens_browser, say=printing.say)
    return 0


def _check_output(library: Library, output: Path, *, overwrite: bool) -> None:
    for view in library.runs():
        files = view.files
        if resolved(output) in {files.results, files.failures, files.materialized, files.record, view.notes.path}:
            raise DataError(f"{output}: this is a file of the run {view.name}. Choose another file.")
    if output.exists() and not overwrite:
        raise DataError(f"{output} exists. Pass --overwrite to replace it, or choose another file.")


def _export(library: Library, selection: Selection, path: Path) -> None:
    report = write_report(library, selection, path)
    for problem in report.problems:
        printing.note(f"warning: {problem}")
    more = "" if report.included == report.total else f" of {report.total:,}; --limit and --filter choose others"
    printing.say(f"{path}: {report.bytes / 1e6:.1f} MB, {counted(report.included, 'rollout')}{more}")
