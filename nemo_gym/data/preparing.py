"""Helpers for a folder's `prepare.py`: a command line for its function, and the shared data files."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from nemo_gym.data.media_files import MEDIA, media_folder
from nemo_gym.data.splits import check_count
from nemo_gym.errors import UsageError, UserError
from nemo_gym.jsonl import read_raw_lines, read_rows
from nemo_gym.paths import INSTALL_ROOT, PACKAGE_DIR
from nemo_gym.text import counted

SHARED_HELP = {
    "input": "the file to turn into rows",
    "output": "the file to write",
    "count": "number of rows",
    "seed": "the same seed makes the same rows",
    "split": "rows of one split only; the two splits have no row in common",
    "skip_bad": "leave out lines that cannot be converted, and report them",
}
"""Help texts of common parameters, for functions that do not describe these themselves."""

INTERRUPTED = 130
"""The exit code for Ctrl-C, as in shells."""

_PARAMETER_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+): +(?P<text>\S.*(?:\n(?P=indent) +\S.*)*)", re.MULTILINE)


def run_prepare(prepare: Callable[..., object], arguments: Sequence[str] | None = None) -> None:
    """Call `prepare` with the arguments of the command line, or with `arguments` if given.

    Each parameter becomes a flag: `dim_room: tuple[int, int]` becomes `--dim-room 7 7`. A parameter without a default
    is required. The flag of a sequence may be repeated, and the flag of a bool takes no value. Help texts come from
    `Annotated[..., "text"]` or from lines `name: text` in the docstring.

    Prints the number of rows in the file whose path `prepare` returns. Ends the process with code 1 if `prepare`
    raises a `UserError`, with code 2 for wrong usage, and with code 130 for Ctrl-C. Raises `TypeError` if an
    annotation cannot be turned into a flag.
    """
    parser = _parser_of(prepare)
    given = vars(parser.parse_args(arguments))
    try:
        check_count(given.get("count"))
        made = prepare(**given)
        if isinstance(made, Path):
            print(_summary_of(made))  # noqa: T201 - the output of a command
    except UsageError as error:
        parser.error(str(error))
    except UserError as error:
        parser.exit(1, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED, "Interrupted.\n")


def shared_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file in the repository's `data/`, such as `cities.jsonl`.

    `data/README.md` describes the files. Raises `DataError` if the file does not exist.
    """
    packaged = PACKAGE_DIR / "shared_data"
    folder = packaged if packaged.is_dir() else INSTALL_ROOT / "data"
    return list(read_rows(folder / name))


def _summary_of(path: Path) -> str:
    folders = [folder for folder in (media_folder(path, media) for media in MEDIA) if folder.is_dir()]
    files = f", with files in {' and '.join(map(str, folders))}" if folders else ""
    return f"{counted(sum(1 for _ in read_raw_lines(path)), 'row')} in {path}{files}"


def _parser_of(prepare: Callable[..., object]) -> argparse.ArgumentParser:
    # Suppress argparse's defaults, so that the function's own default applies if a flag is not given.
    about = (sys.modules[prepare.__module__].__doc__ or "").strip().partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=about, argument_default=argparse.SUPPRESS)
    lines = _PARAMETER_LINE.finditer(inspect.getdoc(prepare) or "")
    described = {line["name"]: " ".join(line["text"].split()) for line in lines}
    hints = get_type_hints(prepare, include_extras=True)
    for name, parameter in inspect.signature(prepare).parameters.items():
        annotation, help_text = _split_annotated(hints.get(name, str))
        options = _options(annotation, parameter)
        text = help_text or described.get(name) or SHARED_HELP.get(name, "")
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            required=parameter.default is parameter.empty,
            # Double each `%`, because argparse formats help texts with `%`.
            help=f"{text}{_default_note(parameter.default)}".strip().replace("%", "%%"),
            **options,
        )
    return parser


def _split_annotated(annotation: object) -> tuple[object, str | None]:
    if get_origin(annotation) is not Annotated:
        return annotation, None
    plain, *notes = get_args(annotation)
    return plain, next((note for note in notes if isinstance(note, str)), None)


def _options(annotation: object, parameter: inspect.Parameter) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a parameter of this type."""
    if get_origin(annotation) in (Union, UnionType):
        not_none = [member for member in get_args(annotation) if member is not NoneType]
        annotation = not_none[0] if len(not_none) == 1 else annotation
    origin, members = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction if parameter.default is True else "store_true"}
    if annotation in (str, int, float, Path):
        return {"type": annotation}
    if origin is Literal and len({type(member) for member in members}) == 1:
        return {"type": type(members[0]), "choices": members}
    if origin in (list, Sequence):
        return {"action": "append", **_options(members[0], parameter)}
    if origin is tuple and Ellipsis not in members and len(set(members)) == 1:
        return {"action": _StoreTuple, "nargs": len(members), **_options(members[0], parameter)}
    raise TypeError(
        f"prepare: parameter '{parameter.name}': {annotation} cannot be read from a command line. "
        "Use Path, str, int, float, bool, Literal, list[...], tuple[...] of one type, or one of these types | None."
    )


class _StoreTuple(argparse.Action):
    """An action that stores a fixed number of values as a tuple."""

    def __call__(
        self, parser: object, namespace: object, values: str | Sequence[object] | None, option_string: object = None
    ) -> None:
        setattr(namespace, self.dest, tuple(values or ()))


def _default_note(default: object) -> str:
    if isinstance(default, bool) or default in (inspect.Parameter.empty, None, (), ""):
        return ""
    shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else default
    return f" (default: {shown})"
