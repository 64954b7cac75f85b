"""From one settings model to the flags of a command, its help, and the settings that were asked for."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym import paths
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.cli.flags import add_flag, encoded, flag_names, key_of, text_keys
from nemo_gym.cli.main import HELP_WORDS, VERBOSE_WORDS
from nemo_gym.cli.selectors import SELECTORS, add_selectors, selected_configs
from nemo_gym.config import problems_by_key
from nemo_gym.config.reserved import RESERVED_KEYS
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.errors import UsageError

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class Sampling(NamedTuple):
    """A flag for one field of every request."""

    field: str
    type: type[int] | type[float]
    meaning: str


SAMPLING_FLAGS = {
    "--temperature": Sampling("temperature", float, "how freely the model samples"),
    "--top-p": Sampling("top_p", float, "the share of likely tokens that are sampled from"),
    "--max-output-tokens": Sampling("max_output_tokens", int, "the most tokens of one answer"),
}
NAME = re.compile(r"[\w./-]*\w[\w./-]*")
"""A bare word that may be a name or a path: no override, and no part of one that the shell has split."""
TEXT = re.compile(r"[^+~=][^=]*")
"""A bare word that may be what is looked for."""
NEAR = 0.85
"""`limt` is that near to `limit`."""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it has to be a number, and is '{text}'") from error


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it has to be a whole number, and is '{text}'") from error


NUMBERS: dict[type[int] | type[float], Callable[[str], float]] = {float: _number, int: _whole_number}


class ModelSettings(BaseModel):
    """Which model a run talks to; read by the configs of model servers."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    policy_base_url: str | list[str] | None = None
    """The model endpoint, up to and including /v1."""
    policy_api_key: str | None = None
    """Its key; better kept in env.yaml, since command lines are visible to others."""
    policy_model_name: str | None = None
    """The model's name at the endpoint."""


class CommandLine(NamedTuple):
    """What was typed: config files and overrides, flags among them."""

    paths: list[str]
    overrides: list[str]


@dataclass(frozen=True)
class Options:
    """The flags of one command."""

    program: str
    summary: str
    model: type[BaseModel]
    takes_config: bool = True
    takes_model: bool = False
    takes_sampling: bool = False
    named_by: str | None = None
    """The setting that a bare word gives, as `mcqa` does in `ng list agents mcqa`."""
    examples: Sequence[str] = field(default=())

    def read(self, words: Sequence[str]) -> CommandLine:
        """Sort the words into config files and overrides; help and mistakes end the program (codes 0 and 2)."""
        parser = self._parser()
        if HELP_WORDS & set(words):
            parser.print_help()
            raise SystemExit(0)
        given = vars(parser.parse_intermixed_args(self._with_values(words)))
        for folder in given.pop("search_dir", None) or []:
            earlier = os.environ.get(paths.EXTRA_ROOTS_ENV_VAR)
            os.environ[paths.EXTRA_ROOTS_ENV_VAR] = os.pathsep.join(filter(None, [earlier, folder]))
        files = list(given.pop("config", None) or [])
        files += selected_configs(given)
        given = {key: value for key, value in given.items() if key not in {each.key for each in SELECTORS}}
        overrides = self._named(parser, given.pop("overrides"))
        self._warn_of_near_misses(overrides)
        texts = text_keys(self.model) | text_keys(ModelSettings)
        flags = [
            f"++{key}={encoded(value, is_text=key in texts)}" for key, value in given.items() if value is not None
        ]
        if any(word.lstrip("+") == "verbose=true" for word in (*overrides, *flags)):
            # As the servers' processes write theirs.
            logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
        return CommandLine(files, [*overrides, *flags])

    def _with_values(self, words: Sequence[str]) -> list[str]:
        """The words, those flags among them that may stand alone with the value that they mean then."""
        alone = {
            flag
            for name, info in self.model.model_fields.items()
            if info.annotation is not bool and bool in typing.get_args(info.annotation)
            for flag in flag_names(key_of(name, info))
        }
        return [f"{word}=true" if word in alone else word for word in words]

    def _named(self, parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
        """The overrides, a bare word among them made one."""
        pattern = TEXT if self.named_by else NAME
        names = [word for word in words if pattern.fullmatch(word)]
        key = self.named_by or ("entrypoint" if "entrypoint" in self.model.model_fields else None)
        if names and key is None:
            hint = f". Did you mean '{self._flag_for(names[0])}'?" if self.takes_config else ""
            parser.error(f"'{names[0]}' is neither a flag nor a setting (+key=value){hint}")
        if len(names) > 1:
            parser.error(f"one name at most, and these are {len(names)}: {' '.join(names)}")
        meant = {word: _folder_of_environment(word) if key == "entrypoint" else word for word in names}
        return [f"++{key}={orjson.dumps(meant[word]).decode()}" if word in names else word for word in words]

    @staticmethod
    def _flag_for(word: str) -> str:
        """The flag that somebody left out before the name or the file of a config."""
        if word.endswith((".yaml", ".yml")):
            return f"--config {word}"
        name = word.partition("/")[0]
        known = (selector.flag for selector in reversed(SELECTORS) if name in selector.known())
        return f"{next(known, '--resources-server')} {word}"

    def _warn_of_near_misses(self, overrides: Sequence[str]) -> None:
        """Any key may be meant for the configuration, so one that is only like a setting's is no error."""
        keys = [key_of(name, info) for name, info in self.model.model_fields.items()]
        keys += sorted({*RESERVED_KEYS, *ModelSettings.model_fields} - {*keys})
        for word in overrides:
            given = word.partition("=")[0].lstrip("+~").partition(".")[0]
            if given not in keys and (close := get_close_matches(given, keys, n=1, cutoff=NEAR)):
                print(  # noqa: T201
                    f"note: {word} sets a value of the configuration; {self.program} has no setting of this name. Did "
                    f"you mean '{close[0]}'?",
                    file=sys.stderr,
                )

    def _parser(self) -> argparse.ArgumentParser:
        parser = _Parser(
            prog=self.program,
            usage=_usage(self.program),
            description=self.summary,
            epilog="\n".join(self.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("overrides", nargs="*", metavar="+key=value", help="settings, or any key of the config")
        parser.add_argument(
            *sorted(VERBOSE_WORDS),
            action="store_true",
            default=None,
            help="also tell what is done on the way [+verbose=true]",
        )
        if self.takes_config:
            parser.add_argument(
                "--config", action="append", metavar="FILE", help="a config file; may be repeated [+config_paths=[…]]"
            )
            add_selectors(parser)
        elif "entrypoint" in self.model.model_fields:
            parser.add_argument(
                "--resources-server",
                dest="entrypoint",
                type=_folder_of_environment,
                metavar="NAME",
                help="the environment: the same as +entrypoint=resources_servers/NAME",
            )
        parser.add_argument(
            "--search-dir", action="append", metavar="DIR", help="a folder that holds environments of your own"
        )
        for name, info in self.model.model_fields.items():
            add_flag(parser, name, info)
        if self.takes_model:
            for name, info in ModelSettings.model_fields.items():
                add_flag(parser, name, info)
        if self.takes_sampling:
            for flag, (name, kind, meaning) in SAMPLING_FLAGS.items():
                key = f"responses_create_params.{name}"
                text = f"{meaning} [+{key}: {kind.__name__}, default as each row says]"
                parser.add_argument(flag, dest=key, type=NUMBERS[kind], metavar=kind.__name__.upper(), help=text)
        return parser


def settings_from(model: type[SettingsT], values: typing.Mapping[str, Any]) -> SettingsT:
    """The command's settings out of the merged configuration; what is missing or wrong is told by name."""
    keys = {key_of(name, info) for name, info in model.model_fields.items()}
    known = {key: values[key] for key in keys if key in values}
    try:
        return model.model_validate(known)
    except ValidationError as error:
        problems = []
        missing = {each["loc"][0] for each in error.errors() if each["type"] == "missing" and len(each["loc"]) == 1}
        for key, told in problems_by_key(error).items():
            if key in missing:
                close = get_close_matches(key, [name for name in values if name not in keys], n=1)
                hint = f" (did you mean it by '{close[0]}'?)" if close else ""
                problems.append(f"{key} is missing{hint}: add {flag_names(key)[0]} … or +{key}=…")
            else:
                # What is wrong with several of them together belongs to none.
                problems.append(f"{key}: {told}" if key else told)
        text = "; ".join(problems)
        raise UsageError(f"{text}{'' if text.endswith('?') else '.'} --help lists all settings.") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        known = [flag for action in self._actions for flag in action.option_strings]
        for word in message.split() if message.startswith("unrecognized") else ():
            if word.startswith("-") and word not in known and (close := get_close_matches(word, known, n=1)):
                message += f". Did you mean '{close[0]}'?"
                break
        stop = "" if message.endswith("?") else "."
        self.exit(2, f"Error: {message}{stop} '{self.prog} --help' lists all settings.\n")


def _usage(program: str) -> str:
    spelled = [each.spelled for each in COMMANDS if program in (each.script, each.spelled)]
    names = "\n       ".join(f"{name} [--flag VALUE …] [+key=value …]" for name in dict.fromkeys((program, *spelled)))
    return names.replace("%", "%%")


def _folder_of_environment(name: str) -> str:
    folder = name.rstrip("/")
    return folder if folder.startswith(SERVER_TYPES) else f"resources_servers/{folder}"
