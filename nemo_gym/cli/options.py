"""Build a command's flags and help from its settings model, and parse its command line."""

from __future__ import annotations

import argparse
import os
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from nemo_gym import paths
from nemo_gym.cli import outside
from nemo_gym.cli.commands import by_program
from nemo_gym.cli.flags import (
    add_flag,
    flag_names,
    flag_words,
    is_list,
    key_of,
    setting_words,
    text_keys,
)
from nemo_gym.cli.main import HELP_WORDS, VERBOSE_WORDS
from nemo_gym.cli.selectors import (
    SELECTORS,
    add_agent_type,
    add_selectors,
    agent_config,
    check_search_dir,
    take_selected,
)
from nemo_gym.config.explain import problems_by_key
from nemo_gym.config.overrides import Override, override_of_flag, parse_override, value_of_flag
from nemo_gym.config.pairing import AGENT_CONFIG
from nemo_gym.config.removed import removed_flag
from nemo_gym.config.run_settings import TOP_LEVEL_KEYS
from nemo_gym.config.settings import ENVIRONMENT_SERVERS, SERVER_TYPES
from nemo_gym.config.sources import CONFIG_PATHS, known_keys
from nemo_gym.config.tree import dotted, plain
from nemo_gym.errors import UsageError
from nemo_gym.text import closest, log_to_terminal

SettingsT = TypeVar("SettingsT", bound=BaseModel)
NAME = re.compile(r"[\w./-]*\w[\w./-]*")
"""A regex for an argument that might be a name or a path. It does not match overrides, or the parts into which the
shell might have split an override."""
KEY_FLAG = re.compile(r"--[A-Za-z_][\w.\[\]-]*")
"""A regex for a flag that can be a key of the configuration."""
TEXT = re.compile(r"[^+~=][^=]*")
"""A regex for an argument that might be a search query."""
FILES = ("input_glob", "rollouts_jsonl_fpath", "input_jsonl_fpath")
"""Settings that take a file of rows or rollouts. If a .jsonl file is given without a flag, one of these flags is
suggested: the first one that the command has."""
_TIERS = tuple(f"{tier}/" for tier in {*SERVER_TYPES, *(selector.folder for selector in SELECTORS)})
SPLIT = "split"
NEAR = 0.75
"""The minimum similarity that counts as a typo, such as `num_repeat` for `num_repeats`."""


class Sampling(NamedTuple):
    """A flag that sets one field of every request to the model."""

    field: str
    type: type[int] | type[float]
    meaning: str

    def parse(self, text: str) -> float:
        """Return the flag's value. Raise `ArgumentTypeError` if it is not a number of this type."""
        try:
            return self.type(text)
        except ValueError as error:
            wanted = "a whole number" if self.type is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {wanted}, got '{text}'") from error


SAMPLING_FLAGS = {
    "--temperature": Sampling("temperature", float, "The sampling temperature."),
    "--top-p": Sampling("top_p", float, "The cumulative probability for nucleus sampling."),
    "--max-output-tokens": Sampling("max_output_tokens", int, "The maximum number of tokens per response."),
}


class ModelSettings(BaseModel):
    """The settings of a run's policy model, to which the configs of model servers refer."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    policy_base_url: str | list[str] | None = None
    """The URL of the model endpoint, including /v1; may be repeated for vllm_model and inference_provider."""
    policy_api_key: str | None = None
    """The endpoint's key. Keep it in env.yaml, because command lines are visible to others."""
    policy_model_name: str | None = None
    """The model's name at the endpoint."""


class PairingSettings(BaseModel):
    """The setting that allows agents and models that do not fit the environments of a run."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    allow_unsupported_pairing: bool = False
    """If an agent or a model does not fit the environment, print a warning and run it anyway."""


class CommandLine(NamedTuple):
    """The config files and overrides of a command line. Flags have been turned into overrides."""

    paths: list[str]
    overrides: list[Override]


class KeyFlag(NamedTuple):
    """A flag for a key of the configuration, such as `--head_server.port 11000`."""

    flag: str
    value: str

    def key(self, known: Collection[str]) -> str:
        """Return the key. Its name may be written with hyphens, except if a known key has them itself."""
        name = self.flag.removeprefix("--")
        first, dot, rest = name.partition(".")
        return name if first in known else f"{first.replace('-', '_')}{dot}{rest}"


@dataclass(frozen=True)
class Options(Generic[SettingsT]):
    """The flags, help and parser of one command, made from its settings model."""

    program: str
    model: type[SettingsT]
    summary: str = ""
    """The start of the help text; by default the command's summary in the list of commands."""
    takes_config: bool = True
    takes_model: bool = False
    takes_sampling: bool = False
    takes_other_keys: bool = False
    """Whether unknown keys are accepted. True if they might belong to a config that the command finds itself."""
    usual_selector: str = "--resources-server"
    """The flag to suggest for a name that was given without a flag."""
    names_folders: Collection[str] = ("resources_server",)
    """The selectors, such as `environment`, that a command for one folder offers as flags."""
    named_by: str | None = None
    """The setting for an argument without a flag, such as `mcqa` in `ng list agents mcqa`.

    If the setting is a list, it takes all such arguments.
    """

    def settings(self, words: Sequence[str]) -> SettingsT:
        """Parse the arguments of a command that needs only its settings, and no config."""
        # Import this here, because `--help` does not need it.
        from nemo_gym.config.loading import load

        return settings_from(self.model, load(*self.read(words), skip_dotenv=True).plain)

    def read(self, words: Sequence[str]) -> CommandLine:
        """Parse the arguments into config files and overrides. Exit with code 0 after help, and 2 on a usage error."""
        parser = self._parser()
        if HELP_WORDS & set(words):
            parser.print_help()
            raise SystemExit(0)
        rest, keys = self._key_flags(parser, self._with_values(words))
        known, unknown = parser.parse_known_intermixed_args(rest)
        if unknown:
            rejected = {*unknown, *(each.flag for each in keys)}
            parser.reject([word for word in words if rejected & {word, word.partition("=")[0]}])
        given = vars(known)
        for folder in given.pop("search_dir", None) or []:
            check_search_dir(folder)
            earlier = os.environ.get(paths.EXTRA_ROOTS_ENV_VAR)
            os.environ[paths.EXTRA_ROOTS_ENV_VAR] = os.pathsep.join(filter(None, [earlier, folder]))
        files = [*(given.pop("config", None) or []), *(take_selected(given) if self.takes_config else ())]
        of_outside: list[Override] = []
        split = given.get(SPLIT) if SPLIT in self.model.model_fields else given.pop(SPLIT, None)
        if place := given.pop(outside.KEY, None):
            config, of_outside = outside.outside_of(place, split)
            files.insert(0, config)
            # The flag may name a split of the environment, which is unknown here. Rows of a given file have none.
            split = None if given.get("input_jsonl_fpath") else "example"
            known_here = {SPLIT: split, "entrypoint": str(Path(config).parents[1]), "unpublished": True}
            given |= {key: value for key, value in known_here.items() if key in self.model.model_fields}
        elif split is not None and SPLIT not in self.model.model_fields:
            parser.error(f"--{SPLIT} names a split of the environment of {outside.FLAG}, which is missing")
        if name := given.get(AGENT_CONFIG):
            given[AGENT_CONFIG] = agent_config(name)
        overrides = self._named(parser, given.pop("overrides")) + of_outside
        if files and not self.takes_config:
            overrides.append(override_of_flag("--config", CONFIG_PATHS, files))
            files = []
        read_files = [*files, *filter(None, [given.get(AGENT_CONFIG)])]
        overrides += self._of_config(parser, read_files, overrides, keys)
        required = {key_of(name, info) for name, info in self.model.model_fields.items() if info.is_required()}
        missing = {key for key in required if given.get(key) is None}
        self._check_keys(parser, read_files, overrides, missing)
        texts = text_keys(self.model) | text_keys(ModelSettings)
        for key, value in given.items():
            if value is not None:
                flag = parser.flag_of(key)
                read = value_of_flag(value, flag, is_text=key in texts) if isinstance(value, str) else value
                overrides.append(override_of_flag(flag, key, read))
        if any(each.path == ("verbose",) and each.value and each.value.value is True for each in overrides):
            log_to_terminal()
        return CommandLine(files, overrides)

    def spelled(self, overrides: Sequence[Override], files: Collection[str] = ()) -> list[str]:
        """Return overrides as flags of this command. `files` are the configs of the command line.

        An override without an equivalent flag, such as a deletion, stays as it is. So do overrides of the same key,
        because the command applies flags after overrides.
        """
        known = {*TOP_LEVEL_KEYS, *(known_keys([*files], ()) if files else ())}
        parser = self._parser()

        def words_of(override: Override) -> list[str] | None:
            others = [each.path for each in overrides if each is not override]
            length = len(override.path)
            if override.value is None or override.action == "delete":
                return None
            if any(path[:length] == override.path[: len(path)] for path in others):
                return None
            key, value = dotted(override.path), plain(override.value)
            if key in self._fields:
                return setting_words(key, self._fields[key], value)
            first, dot, _ = key.partition(".")
            flag = f"--{key}" if dot else f"--{key.replace('_', '-')}"
            is_known = first in known or (dot and "-" not in first)
            if not is_known or not KEY_FLAG.fullmatch(flag) or parser.knows(flag):
                return None
            return flag_words(flag, value)

        return [word for each in overrides for word in words_of(each) or [each.as_argument()]]

    @property
    def _fields(self) -> dict[str, FieldInfo]:
        """The settings that have a flag of this command, by key."""
        models = (self.model, *((ModelSettings, PairingSettings) if self.takes_model else ()))
        return {key_of(name, info): info for model in models for name, info in model.model_fields.items()}

    def _with_values(self, words: Sequence[str]) -> list[str]:
        """Append `=true` to flags that were given without their optional value."""
        alone = {
            flag
            for name, info in self.model.model_fields.items()
            if info.annotation is not bool and bool in typing.get_args(info.annotation)
            for flag in flag_names(key_of(name, info))
        }
        return [f"{word}=true" if word in alone else word for word in words]

    def _key_flags(self, parser: _Parser, words: Sequence[str]) -> tuple[list[str], list[KeyFlag]]:
        """Split the flags that only the configuration can know from the other arguments, with their values."""
        rest: list[str] = []
        found: list[KeyFlag] = []
        following = list(words)
        while following:
            word = following.pop(0)
            flag, equals, value = word.partition("=")
            if not (self.takes_config or self.takes_other_keys) or not KEY_FLAG.fullmatch(flag) or parser.knows(flag):
                rest.append(word)
            elif parser.knows(flag.replace("_", "-")):
                rest.append(word.replace(flag, flag.replace("_", "-"), 1))
            elif equals or (following and not following[0].startswith(("--", "+", "~"))):
                found.append(KeyFlag(flag, value if equals else following.pop(0)))
            elif "." in flag:
                parser.error(f"argument {flag}: expected one argument")
            else:
                rest.append(word)
        return rest, found

    def _of_config(
        self, parser: _Parser, files: Sequence[str], overrides: Sequence[Override], flags: Sequence[KeyFlag]
    ) -> list[Override]:
        """Turn flags for keys of the configuration into overrides.

        Reject a flag without a dot if the configuration does not know its key, because it may be a misspelled setting.
        """
        if not flags:
            return []
        known = {*TOP_LEVEL_KEYS, *(known_keys(files, overrides) if self.takes_config else ())}
        if unknown := [each.flag for each in flags if "." not in each.flag and each.key(known) not in known]:
            parser.reject(unknown)
        return [
            override_of_flag(each.flag, each.key(known), value_of_flag(each.value, each.flag, is_text=False))
            for each in flags
        ]

    def _named(self, parser: argparse.ArgumentParser, words: list[str]) -> list[Override]:
        """Turn arguments without a flag into overrides: overrides as texts, and names."""
        pattern = TEXT if self.named_by else NAME
        names = [word for word in words if pattern.fullmatch(word)]
        key = self.named_by or ("entrypoint" if "entrypoint" in self.model.model_fields else None)
        if names and key is None:
            flag = self._flag_for(names) if self.takes_config else None
            hint = f". Did you mean '{flag}'?" if flag else ""
            parser.error(f"'{names[0]}' is not a flag{hint}")
        if self.named_by and is_list(self.model.model_fields[self.named_by]):
            return self._listed(self.named_by, words)
        if len(names) > 1:
            hint = ". Put words that belong together in quotes" if self.named_by else ""
            parser.error(f"expected at most one name, got {len(names)}: {' '.join(names)}{hint}")
        meant = {word: self._folder_named(word) if key == "entrypoint" else word for word in names}
        return [
            override_of_flag("", str(key), meant[word]) if word in names else parse_override(word) for word in words
        ]

    def _folder_named(self, name: str) -> str:
        """Return the first folder of this name among those that the command accepts."""
        tiers = [selector.folder for selector in reversed(SELECTORS) if selector.key in self.names_folders]
        choices = [_folder_in(tier, name) for tier in tiers]
        return next((each for each in choices if paths.find(each, Path.is_dir)), choices[0])

    def _listed(self, key: str, words: list[str]) -> list[Override]:
        """Combine names and paths into one override of a list setting, including existing paths that contain '='."""
        names = [word for word in words if TEXT.fullmatch(word) or os.path.exists(word)]
        given = [override_of_flag("", key, names)] if names else []
        return [*(parse_override(word) for word in words if word not in names), *given]

    def _flag_for(self, words: Sequence[str]) -> str | None:
        """Return a corrected argument: the first of these names or files, with the flag that it needs.

        Return None for a file for which the command has no flag.
        """
        word = words[0]
        if word.endswith(".jsonl"):
            file = next((key for key in FILES if key in self.model.model_fields), None)
            # Suggest all words for `input_glob`, because the shell has replaced a pattern with the matching files.
            meant = ",".join(words) if file == "input_glob" else word
            return f"{flag_names(file)[0]} {meant}" if file else None
        if word.endswith((".yaml", ".yml")):
            return f"--config {word}"
        name = word.partition("/")[0]
        usual_first = sorted(reversed(SELECTORS), key=lambda selector: selector.flag != self.usual_selector)
        known = (selector.flag for selector in usual_first if name in selector.known())
        return f"{next(known, self.usual_selector)} {word}"

    def _check_keys(
        self,
        parser: argparse.ArgumentParser,
        files: Sequence[str],
        overrides: Sequence[Override],
        missing: Collection[str],
    ) -> None:
        """Reject keys that nothing reads.

        If the command takes a config, reject only likely typos, because server folders may read other keys.
        """
        names: dict[str, str] = {}
        for key in self._fields:
            names |= dict.fromkeys([key, *(flag.lstrip("-").replace("-", "_") for flag in flag_names(key))], key)
        if self.takes_sampling:
            names |= {each.field: f"responses_create_params.{each.field}" for each in SAMPLING_FLAGS.values()}
        for override, meant in unknown_keys(files, overrides, names, missing):
            if meant or not (self.takes_config or self.takes_other_keys):
                # Leave out the value, because it may be a secret.
                shown = re.split("[ =]", override.word, maxsplit=1)[0]
                parser.error(f"{shown}: nothing reads this key{f'. Did you mean {meant!r}?' if meant else ''}")

    def _parser(self) -> _Parser:
        parser = _Parser(
            prog=self.program,
            usage=_usage(self.program),
            description=self.summary or f"{by_program(self.program)[0].summary}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("overrides", nargs="*", help=argparse.SUPPRESS)
        verbose = "Log each step."
        parser.add_argument(*sorted(VERBOSE_WORDS), action="store_true", default=None, help=verbose)
        if self.takes_config or self.takes_other_keys:
            parser.add_argument("--config", action="append", metavar="FILE", help="A config file; may be repeated.")
        if self.takes_config:
            add_selectors(parser)
        elif "entrypoint" in self.model.model_fields:
            for selector in SELECTORS:
                if selector.key in self.names_folders:
                    parser.add_argument(
                        selector.flag,
                        dest="entrypoint",
                        type=partial(_folder_in, selector.folder),
                        metavar="NAME",
                        help=f"The folder {selector.folder}/NAME.",
                    )
        if self.takes_config or self.takes_other_keys:
            parser.add_argument(outside.FLAG, dest=outside.KEY, metavar="KIND:ADDRESS", help=outside.MEANING)
            if SPLIT not in self.model.model_fields:
                parser.add_argument(
                    f"--{SPLIT}", metavar="NAME", help=f"The split of the environment of {outside.FLAG}."
                )
        parser.add_argument(
            "--search-dir", action="append", metavar="DIR", help="A folder with your own environments."
        )
        for name, info in self.model.model_fields.items():
            add_flag(parser, name, info)
        if self.takes_model:
            add_agent_type(parser)
            for name, info in {**PairingSettings.model_fields, **ModelSettings.model_fields}.items():
                add_flag(parser, name, info)
        if self.takes_sampling:
            for flag, sampling in SAMPLING_FLAGS.items():
                key, kind = f"responses_create_params.{sampling.field}", sampling.type.__name__
                text = f"{sampling.meaning} [{kind}, default: the row's value]"
                parser.add_argument(flag, dest=key, type=sampling.parse, metavar=kind.upper(), help=text)
        return parser


def settings_from(model: type[SettingsT], values: Mapping[str, object]) -> SettingsT:
    """Return a command's settings from the merged config. Raise `UsageError` with all invalid keys."""
    keys = {key_of(name, info): info.annotation for name, info in model.model_fields.items()}
    known = {key: paths.expand_home(values[key], kind) for key, kind in keys.items() if key in values}
    try:
        return model.model_validate(known)
    except ValidationError as error:
        problems = []
        missing = {each["loc"][0] for each in error.errors() if each["type"] == "missing" and len(each["loc"]) == 1}
        for key, problem in problems_by_key(error).items():
            if key in missing:
                meant = closest(key, [name for name in values if name not in keys])
                hint = f" (is '{meant}' a misspelling of it?)" if meant else ""
                problems.append(f"{key} is missing{hint}: add {flag_names(key)[0]} …")
            else:
                # Omit the key if the problem concerns several settings.
                problems.append(f"{key}: {problem}" if key else problem)
        text = "; ".join(problems)
        raise UsageError(f"{text}{'' if text.endswith('?') else '.'} --help lists all settings.") from error


class _Parser(argparse.ArgumentParser):
    def knows(self, flag: str) -> bool:
        """Return whether the command itself has this flag."""
        return flag in self._option_string_actions

    def flag_of(self, key: str) -> str:
        """Return the first flag of a setting."""
        return next(action.option_strings[0] for action in self._actions if action.dest == key)

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        """Exit with an error that names the unknown flags. `unknown` can also contain valid arguments after a flag."""
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        known = [flag for action in self._actions for flag in action.option_strings]
        meant = next(filter(None, (closest(flag, known) for flag in flags)), None)
        removed = next(filter(None, map(removed_flag, flags)), None)
        hint = f". {removed}" if removed else f". Did you mean '{meant}'?" if meant else ""
        self.error(f"unrecognized arguments: {', '.join(flags or unknown)}{hint}")

    def error(self, message: str) -> NoReturn:
        stop = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"Error: {message}{stop} --help lists all settings.\n")


def _usage(program: str) -> str:
    usual = next((command.usual for command in by_program(program)), program)
    return f"{usual} [--flag VALUE …]".replace("%", "%%")


def _folder_in(tier: str, name: str) -> str:
    folder = name.rstrip("/")
    return folder if folder.startswith((*_TIERS, "/", "~", ".")) else f"{tier}/{folder}"


class UnknownKey(NamedTuple):
    """An override whose key nothing reads, with the key that was probably meant, or None."""

    override: Override
    meant: str | None


def unknown_keys(
    files: Sequence[str], overrides: Sequence[Override], settings: Mapping[str, str], missing: Collection[str]
) -> list[UnknownKey]:
    """Return the overrides whose key is neither a setting nor known to the config.

    `settings` maps all names of the command's settings to their keys. A likely typo of one of the `missing` settings
    is left out, because the error about the missing setting mentions it. The config is read only if a key is not a
    setting.
    """
    keys = {*settings.values(), *TOP_LEVEL_KEYS}
    unknown = [(each, key) for each in overrides if (key := _added_key(each)) and key not in keys]
    if not unknown:
        return []
    of_config = known_keys(files, overrides)
    reported = {*missing} - of_config - {_added_key(each) for each in overrides}
    found = [
        UnknownKey(override, settings.get(key) or closest(key, sorted(keys), NEAR))
        for override, key in unknown
        if key not in of_config
    ]
    return [each for each in found if each.meant not in reported]


def _added_key(override: Override) -> str | None:
    """Return the top-level key that an override sets, even if no file has it; None for all other overrides.

    Also return None if the override adds a server, because a server can have any name.
    """
    value = override.value
    below = [*override.path[1:2], *(map(str, value.mapping) if value is not None and len(override.path) == 1 else ())]
    is_server = any(key in (*SERVER_TYPES, ENVIRONMENT_SERVERS) for key in below)
    return None if is_server or override.action != "set" else override.path[0]
