"""The command-line reference: every command with its flags, from its own parser."""

from __future__ import annotations

import argparse
import contextlib
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
_KIND = re.compile(r"\s*\[(?P<kind>[^\]]+(?:, required|, default.*|: the row's value))\]$", re.DOTALL)
"""The end of a flag's help: its type and default, as `[int, default none]`."""


def commands() -> str:
    """Return the body of the page."""
    parts = []
    for noun, heading in NOUNS.items():
        group = [command for command in COMMANDS if command.noun == noun and not command.is_alias]
        rows = [(code(command.usual), command.summary) for command in group]
        parts += [f"## {heading}\n", table(("command", "what it does"), rows), ""]
        parts += map(_section, group)
    return "\n".join(parts)


def title_of(command: Command) -> str:
    """Return the heading of a command."""
    # `ng env test` is two commands: the one without a folder tests all folders.
    first = next(each for each in COMMANDS if each.spelled == command.spelled)
    return command.usual if command is first else f"{command.usual} (all folders)"


def spellings() -> str:
    """Return the table of the commands that have other names."""
    rows = []
    for command in COMMANDS:
        if others := [name for name in names_of(command) if name != command.usual]:
            rows.append((code(command.usual), ", ".join(map(code, others)), command.summary))
    return table(("usual", "also", "what it does"), rows)


def names_of(command: Command) -> list[str]:
    """Return all names of a command, without the other names of the program `ng`."""
    scripts = [command.script, command.script.replace("ng_", "nemo_gym_", 1)] if command.script else []
    return [command.spelled, *scripts]


def flag_spellings() -> str:
    """Return the table of the settings whose usual flag is not named after their key."""
    found: dict[tuple[str, str], str] = {}
    for command in COMMANDS:
        parser = parser_of(command)
        for action in parser._actions if parser else ():
            long = [name for name in action.option_strings if name.startswith("--")]
            if _KIND.search(action.help or "") and long and long[0] != f"--{action.dest.replace('_', '-')}":
                found[long[0], action.dest] = ", ".join(map(code, action.option_strings[1:]))
    rows = [(code(flag), others, code(f"+{key}=…")) for (flag, key), others in sorted(found.items())]
    return table(("usual", "other flags", "override"), rows)


def _section(command: Command) -> str:
    lines = [f"### {title_of(command)}\n", f"{command.summary}.\n"]
    parser = parser_of(command)
    if parser is None:
        return "\n".join(lines)
    if parser.description and parser.description.rstrip(".") != command.summary:
        lines.append(f"```text\n{parser.description}\n```\n")
    lines.append(f"```{{program}} {command.usual}\n```\n")
    return "\n".join([*lines, *_options(parser)])


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    flags = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    for names, same in groupby(flags, key=lambda action: tuple(action.option_strings)):
        yield _option(names, next(same))


def _option(names: tuple[str, ...], action: argparse.Action) -> str:
    metavar = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
    text = (action.help or "").replace("%%", "%")
    kind = _KIND.search(text)
    text = f"{text[: kind.start()]}\n\nKey: `{action.dest}` ({code(kind['kind'])})" if kind else text
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
    argparse.ArgumentParser.print_help = show  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            command.imported()(["--help"])
    except _Shown as shown:
        return shown.parser
    except SystemExit:
        return None
    finally:
        argparse.ArgumentParser.print_help = original  # type: ignore[method-assign]
    return None
