"""From one settings model to the flags of a command, its help, and the settings that were asked for."""

from __future__ import annotations

import argparse
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nemo_gym import paths
from nemo_gym.cli.main import COMMANDS, HELP_WORDS, VERBOSE_WORDS
from nemo_gym.config import problems_by_key
from nemo_gym.config.reserved import RESERVED_KEYS
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError

SettingsT = TypeVar("SettingsT", bound=BaseModel)

SHORT_FLAGS = {
    "input_jsonl_fpath": ("--input", "-i"),
    "output_jsonl_fpath": ("--output", "-o"),
    "agent_name": ("--agent", "-a"),
    "num_samples_in_parallel": ("--concurrency",),
    "resume_from_cache": ("--resume",),
    "policy_model_name": ("--model", "-m"),
    "policy_base_url": ("--model-url",),
    "policy_api_key": ("--model-api-key",),
}


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
TEXTS = ("str", "path")
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
    examples: Sequence[str] = field(default=())

    def read(self, words: Sequence[str]) -> CommandLine:
        """Sort the words into config files and overrides; help and mistakes end the program (codes 0 and 2)."""
        parser = self._parser()
        if HELP_WORDS & set(words):
            parser.print_help()
            raise SystemExit(0)
        given = vars(parser.parse_intermixed_args(list(words)))
        for folder in given.pop("search_dir", None) or []:
            earlier = os.environ.get(paths.EXTRA_ROOTS_ENV_VAR)
            os.environ[paths.EXTRA_ROOTS_ENV_VAR] = os.pathsep.join(filter(None, [earlier, folder]))
        files = list(given.pop("config", None) or [])
        files += [_shipped_config("resources_servers", name) for name in given.pop("resources_server", None) or []]
        files += [_shipped_config("responses_api_models", name) for name in given.pop("model_type", None) or []]
        overrides = given.pop("overrides")
        self._warn_of_near_misses(overrides)
        texts = _text_keys(self.model) | _text_keys(ModelSettings)
        flags = [
            f"++{key}={_encoded(value, is_text=key in texts)}" for key, value in given.items() if value is not None
        ]
        return CommandLine(files, [*overrides, *flags])

    def _warn_of_near_misses(self, overrides: Sequence[str]) -> None:
        """Any key may be meant for the configuration, so one that is only like a setting's is no error."""
        keys = [_key(name, info) for name, info in self.model.model_fields.items()]
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
        parser.add_argument(*sorted(VERBOSE_WORDS), action="store_true", default=None, help="[+verbose=true]")
        if self.takes_config:
            parser.add_argument(
                "--config", action="append", metavar="FILE", help="a config file; may be repeated [+config_paths=[…]]"
            )
            parser.add_argument(
                "--resources-server", action="append", metavar="NAME[/FLAVOR]", help="the config of an environment"
            )
            parser.add_argument(
                "--model-type", action="append", metavar="NAME[/FLAVOR]", help="the config of a model server"
            )
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
            _add_flag(parser, name, info)
        if self.takes_model:
            for name, info in ModelSettings.model_fields.items():
                _add_flag(parser, name, info)
        if self.takes_sampling:
            for flag, (name, kind, meaning) in SAMPLING_FLAGS.items():
                key = f"responses_create_params.{name}"
                text = f"{meaning} [+{key}: {kind.__name__}, default as each row says]"
                parser.add_argument(flag, dest=key, type=NUMBERS[kind], metavar=kind.__name__.upper(), help=text)
        return parser


def settings_from(model: type[SettingsT], values: typing.Mapping[str, Any]) -> SettingsT:
    """The command's settings out of the merged configuration; what is missing or wrong is told by name."""
    keys = {_key(name, info) for name, info in model.model_fields.items()}
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
                problems.append(f"{key} is missing{hint}: add {_flag_names(key)[0]} … or +{key}=…")
            else:
                problems.append(f"{key}: {told}")
        text = "; ".join(problems)
        raise ConfigError(f"{text}{'' if text.endswith('?') else '.'} --help lists all settings.") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        known = [flag for action in self._actions for flag in action.option_strings]
        for word in message.split() if message.startswith("unrecognized") else ():
            if word.startswith("-") and word not in known and (close := get_close_matches(word, known, n=1)):
                message += f". Did you mean '{close[0]}'?"
                break
        stop = "" if message.endswith("?") else "."
        self.exit(2, f"Error: {message}{stop} '{self.prog} --help' lists all settings.\n")


def _add_flag(parser: argparse.ArgumentParser, name: str, info: FieldInfo) -> None:
    key = _key(name, info)
    kind = _type_words(info.annotation)
    default = "required" if info.is_required() else f"default {_shown_default(info)}"
    text = f"{(info.description or '').strip()} [+{key}: {kind}, {default}]".replace("%", "%%")
    if info.annotation is bool:
        parser.add_argument(*_flag_names(key), dest=key, action="store_true", default=None, help=text)
        return
    parser.add_argument(*_flag_names(key), dest=key, metavar=_metavar(info, kind), help=text)


def _metavar(info: FieldInfo, kind: str) -> str:
    is_choice = typing.get_origin(info.annotation) is typing.Literal
    return kind if is_choice else kind.split("|", maxsplit=1)[0].upper()


def _usage(program: str) -> str:
    spelled = [" ".join(("ng", each.noun, each.verb)) for each in COMMANDS if each.script == program]
    names = "\n       ".join(f"{name} [--flag VALUE …] [+key=value …]" for name in (program, *spelled))
    return names.replace("%", "%%")


def _key(name: str, info: FieldInfo) -> str:
    """What the setting is called outside: its alias, where its own name would hide something."""
    outside: str = info.alias or name
    return outside


def _flag_names(name: str) -> tuple[str, ...]:
    own = f"--{name.replace('_', '-')}"
    return (*(flag for flag in SHORT_FLAGS.get(name, ())), own)


def _shown_default(info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined or default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default or "empty")


def _type_words(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return "|".join(_type_words(each) for each in arguments if each is not type(None))
    if origin is typing.Annotated:
        return _type_words(arguments[0])
    if origin is typing.Literal:
        return "|".join(str(each) for each in arguments)
    if origin in (dict, list):
        return str(origin.__name__)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "dict"
    return "path" if annotation is Path else getattr(annotation, "__name__", str(annotation))


def _text_keys(model: type[BaseModel]) -> set[str]:
    """The settings of a text or a path: `4.10` is a model's name there, not a number."""
    return {_key(name, info) for name, info in model.model_fields.items() if _type_words(info.annotation) in TEXTS}


def _encoded(value: Any, *, is_text: bool) -> str:
    if isinstance(value, (bool, int, float)):
        return orjson.dumps(value).decode()
    text = str(value)
    looks_structured = text[:1] in "[{" or text.lower() in ("true", "false", "null")
    is_number = not is_text and text.replace(".", "", 1).replace("-", "", 1).isdigit()
    quoted: str = orjson.dumps(text).decode()
    return text if looks_structured or is_number else quoted


def _folder_of_environment(name: str) -> str:
    return f"resources_servers/{name.removeprefix('resources_servers/').rstrip('/')}"


def _shipped_config(tier: str, name: str) -> str:
    implementation, _, flavor = name.partition("/")
    relative = f"{tier}/{implementation}/configs/{flavor or implementation}.yaml"
    if paths.find(relative, Path.is_file) is not None:
        return relative
    known = sorted(
        {folder.name for root in paths.search_roots() for folder in (root / tier).glob("*/") if folder.is_dir()}
    )
    close = get_close_matches(implementation, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else f" There are: {', '.join(known)}."
    flag = "--resources-server" if tier == "resources_servers" else "--model-type"
    raise ConfigPathNotFoundError(f"{flag} {name}: no {relative}.{hint}")
