"""The command-line reference: every command with its flags, from its own parser."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
from collections.abc import Iterator
from itertools import groupby

from nemo_gym.cli.commands import COMMANDS, Command
from pages.markdown import code, directive, prose, table

NOUNS = {
    "env": "Environments and their servers",
    "eval": "Collections and evaluations",
    "submit": "Slurm jobs",
    "deploy": "Manifests",
    "list": "Lists",
    "dataset": "Datasets",
    "dev": "This repository",
    "": "Other commands",
}
_KEY = re.compile(r"\s*\[(?P<spelled>\+[\w.]+[:=].*)\]$", re.DOTALL)
"""The end of a flag's help: its key, type and default, as `[+limit: int, default none]`."""


def commands() -> str:
    """Return the body of the page."""
    parts = []
    for noun, heading in NOUNS.items():
        group = [command for command in COMMANDS if command.noun == noun]
        rows = [(code(command.spelled), code(command.script), command.summary) for command in group]
        parts += [f"## {heading}\n", table(("command", "published name", "what it does"), rows), ""]
        parts += map(_section, group)
    return "\n".join(parts)


def _title(command: Command) -> str:
    # `ng env test` is two commands: the one without a folder is `ng_test_all`.
    first = next(each for each in COMMANDS if each.spelled == command.spelled)
    return command.spelled if command is first else command.script


def _section(command: Command) -> str:
    lines = [f"### {_title(command)}\n", f"{command.summary}.\n"]
    if command.script:
        lines.append(f"Also `{command.script}` and `{command.script.replace('ng_', 'nemo_gym_', 1)}`.\n")
    parser = parser_of(command)
    if parser is None:
        return "\n".join(lines)
    if parser.description and parser.description.rstrip(".") != command.summary:
        lines.append(f"```text\n{parser.description}\n```\n")
    lines.append(f"```{{program}} {_title(command)}\n```\n")
    return "\n".join([*lines, *_options(parser)])


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    flags = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    for names, same in groupby(flags, key=lambda action: tuple(action.option_strings)):
        yield _option(names, next(same))


def _option(names: tuple[str, ...], action: argparse.Action) -> str:
    metavar = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
    text = (action.help or "").replace("%%", "%")
    key = _KEY.search(text)
    text = f"{text[: key.start()]}\n\nKey: `{key['spelled']}`" if key else text
    return directive("option", ", ".join(f"{name}{value}" for name in names), prose(text))


class _Shown(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(command: Command) -> argparse.ArgumentParser | None:
    """Return the parser that a command builds; None if it takes no flags."""

    def show(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise _Shown(parser)

    # Commands build their parsers when they run, so ask for the help and take the parser that would print it.
    original = argparse.ArgumentParser.print_help
    module, function = command.function.split(":")
    argparse.ArgumentParser.print_help = show  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            getattr(importlib.import_module(f"nemo_gym.cli.{module}"), function)(["--help"])
    except _Shown as shown:
        return shown.parser
    except SystemExit:
        return None
    finally:
        argparse.ArgumentParser.print_help = original  # type: ignore[method-assign]
    return None
