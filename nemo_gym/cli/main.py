"""The `ng` program, which finds the command, runs it, and prints errors for the user."""

from __future__ import annotations

import codecs
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.cli import printing
from nemo_gym.cli.commands import Command, all_commands, by_script, by_words
from nemo_gym.cli.signals import interrupt_on_signals
from nemo_gym.errors import UsageError, UserError
from nemo_gym.http.open_files import raise_open_files_limit
from nemo_gym.paths import EXTRA_ROOTS_ENV_VAR, missing_extra_roots
from nemo_gym.text import VisibleFormatter, did_you_mean
from nemo_gym.version import __version__

JSON_WORDS = {"--json", "+json=true", "++json=true", "json=true"}
VERBOSE_WORDS = {"-v", "--verbose"}
HELP_WORDS = {"-h", "--help", "+h=true", "+help=true", "++h=true", "++help=true", "h=true", "help=true"}

SIMILAR = str.maketrans("–—…×→✓✗·±≥≤“”’█▏▎▍▌▋▊▉", '--~x>+x-~><""\'########')
"""ASCII characters of the same width for those that the tables and messages of the commands contain."""


def main(argv: Sequence[str] | None = None, program: str | None = None) -> int:
    """Run the command that the script name or the first arguments select, and return the exit code."""
    # Do this first, because a raw death would leave the warm process behind.
    interrupt_on_signals()
    codecs.register_error("similar", _similar)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Replace characters that the terminal cannot encode, because an encoding error would end the run.
            stream.reconfigure(errors="similar")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleFormatter())
    raise_open_files_limit()
    words = list(sys.argv[1:] if argv is None else argv)
    name = Path(sys.argv[0]).name if program is None else program
    try:
        return _run(name, words)
    except UserError as error:
        printing.note(f"Error: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        for line in getattr(interrupt, "__notes__", ["Interrupted."]):
            printing.note(line)
        return 130
    except BrokenPipeError:
        # Exit without a message, as other tools do, because the program that reads the output has closed the pipe.
        printing.discard_output()
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        printing.note(f"Error: {error.filename}: {error.strerror}.")
        return 1


def _similar(error: UnicodeError) -> tuple[str, int]:
    """Replace what a terminal cannot encode, as an error handler for `codecs`."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(SIMILAR)
    return "".join(each if each.isascii() else "?" for each in text), error.end


def _run(name: str, words: list[str]) -> int:
    if command := by_script(name):
        return _execute(command, words)
    is_verbose = bool(VERBOSE_WORDS & set(words))
    words = [word for word in words if word not in VERBOSE_WORDS]
    if "--version" in words[:2]:
        return print_version(words)
    if not words or words[0] in HELP_WORDS:
        print_help([])
        return 0 if words else 1
    found = by_words(words)
    if found is None:
        return _unknown(words)
    return _execute(found.command, [*found.rest, "--verbose"] if is_verbose and found.command.noun else found.rest)


def _execute(command: Command, words: list[str]) -> int:
    for root in missing_extra_roots():
        problem = f"there is no folder '{root}', so it is not searched. Correct the path."
        printing.note(f"warning: {EXTRA_ROOTS_ENV_VAR}: {problem}")
    if not command.starts_servers or HELP_WORDS & set(words):
        return command.imported()(words)
    # Import the module here, because only commands that start servers need it.
    from nemo_gym.launcher.warm import WarmStarter, is_supported

    # Start the warm process before the command's module is imported, because the imports of the warm process take
    # longer than all other steps together.
    starter = WarmStarter() if is_supported() else None
    try:
        return command.imported()(words, starter)
    finally:
        if starter is not None:
            starter.close()


def _unknown(words: list[str]) -> int:
    nouns = sorted({command.noun for command in all_commands() if command.noun})
    if words[0] in nouns:
        verbs = sorted({command.verb.split()[0] for command in all_commands() if command.noun == words[0]})
        if len(words) == 1 or words[1] in HELP_WORDS:
            print_help([words[0]])
            return 0 if len(words) > 1 else 2
        given, known = words[1], verbs
        place = f"ng {words[0]}"
    else:
        given = words[0]
        known = list(dict.fromkeys([*nouns, *(command.verb for command in all_commands() if not command.noun)]))
        place = "ng"
    hint = did_you_mean(given, known)
    printing.note(f"Error: '{place} {given}' is not a command.{hint} Available: {', '.join(known)}.")
    return 2


def print_version(words: list[str]) -> int:
    """Print the version, as JSON with `--json`."""
    wanted = {"--version", *JSON_WORDS, *HELP_WORDS, *VERBOSE_WORDS}
    if unknown := [word for word in words if word not in wanted]:
        hint = did_you_mean(unknown[0], ["--json", "--help"])
        printing.note(f"Error: ng version: unknown argument '{unknown[0]}'.{hint}")
        return 2
    if HELP_WORDS & set(words):
        print("usage: ng version [--json]\n\nPrint the version.")  # noqa: T201
        return 0
    as_json = bool(JSON_WORDS & set(words))
    print(f'{{"nemo-gym": "{__version__}"}}' if as_json else f"nemo-gym {__version__}")  # noqa: T201
    return 0


def print_help(words: list[str]) -> int:
    """Print the list of commands, or the help of the command that the words name."""
    words = [word for word in words if word not in HELP_WORDS | VERBOSE_WORDS]
    nouns = {command.noun for command in all_commands()}
    if words and (len(words) > 1 or words[0] not in nouns):
        named = by_script(words[0])
        found = by_words(words)
        command = named or (found.command if found else None)
        return command.imported()(["--help"]) if command else _unknown(words)
    shown = [command for command in all_commands() if not words or words[0] == (command.noun or command.verb)]
    lines = ["nemo_gym: environments for language-model agents, and rollouts collected in them.", ""]
    summaries = {(command.usual, command.summary): None for command in shown if not command.is_alias}
    lines += [f"  {name:<36} {summary}" for name, summary in summaries]
    lines += [
        "",
        "Every command takes --help. Settings are flags (--limit 5), and so is every key of the configuration "
        "(--head_server.port 11000).",
    ]
    print("\n".join(lines))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
