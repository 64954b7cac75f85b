"""Turn a settings field into a command-line flag, and a value into the words of a flag."""

from __future__ import annotations

import argparse
import types
import typing
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nemo_gym.config.overrides import value_of_flag
from nemo_gym.config.settings import MODEL_FLAGS
from nemo_gym.config.values import written

SHORT_FLAGS = {
    "input_glob": ("--input-glob", "-i"),
    "materialized_inputs_jsonl_fpath": ("--inputs",),
    "rollouts_jsonl_fpath": ("--rollouts",),
    "output_dirpath": ("--output-dir",),
    "output_fpath": ("--output", "-o"),
    "should_download": ("--download",),
    "dataset_name": ("--name",),
    "deployment": ("--name",),
    "artifact_fpath": ("--artifact",),
    "version": ("--revision",),
    "input_jsonl_fpath": ("--input", "-i"),
    "output_jsonl_fpath": ("--output", "-o"),
    "agent_name": ("--agent", "-a"),
    "num_samples_in_parallel": ("--concurrency",),
    "resume_from_cache": ("--resume",),
    **{key: (flag,) for key, flag in MODEL_FLAGS.items()},
    "policy_model_name": (MODEL_FLAGS["policy_model_name"], "-m"),
}
TEXTS = ("str", "path")


def add_flag(parser: argparse.ArgumentParser, name: str, info: FieldInfo) -> None:
    key = key_of(name, info)
    kind = _type_words(info.annotation)
    default = "required" if info.is_required() else f"default {_shown_default(info)}"
    text = f"{(info.description or '').strip()} [{kind}, {default}]".replace("%", "%%")
    if info.annotation is bool:
        parser.add_argument(*flag_names(key), dest=key, action="store_true", default=None, help=text)
        return
    if size := _fixed_size(info):
        parser.add_argument(*flag_names(key), dest=key, nargs=size, metavar=("LOW", "HIGH"), help=text)
        return
    may_be_list = any(typing.get_origin(kind) is list for kind in typing.get_args(info.annotation))
    action = "append" if is_list(info) else _StoreOrList if may_be_list else "store"
    parser.add_argument(*flag_names(key), dest=key, action=action, metavar=_metavar(info, kind), help=text)


def is_list(info: FieldInfo) -> bool:
    """Return whether a setting holds a list. If so, its flag may be repeated."""
    return typing.get_origin(info.annotation) is list


class _StoreOrList(argparse.Action):
    """An action for a setting that holds one value or a list. It stores a list if the flag is repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        together = values if earlier is None else [*(earlier if isinstance(earlier, list) else [earlier]), values]
        setattr(namespace, self.dest, together)


def _fixed_size(info: FieldInfo) -> int:
    """Return the number of values of a setting that holds a tuple, such as a range; 0 for other settings."""
    kinds = (info.annotation, *typing.get_args(info.annotation))
    return next((len(typing.get_args(kind)) for kind in kinds if typing.get_origin(kind) is tuple), 0)


def _metavar(info: FieldInfo, kind: str) -> str:
    if bool in typing.get_args(info.annotation):
        return f"(={kind.removeprefix('bool|')})"
    kinds = [each for each in (info.annotation, *typing.get_args(info.annotation)) if each is not type(None)]
    # An optional choice also is a choice, but `int | Literal["auto"]` is not.
    is_choice = typing.get_origin(kinds[0]) is typing.Literal or (
        len(kinds) == 2 and typing.get_origin(kinds[1]) is typing.Literal
    )
    return kind if is_choice else kind.split("|", maxsplit=1)[0].upper()


def key_of(name: str, info: FieldInfo) -> str:
    """Return the setting's public name: its alias if it has one, else its own name."""
    return info.alias or name


def flag_names(name: str) -> tuple[str, ...]:
    """Return all flags of a setting. The first one is the flag that messages suggest."""
    return tuple(dict.fromkeys([*SHORT_FLAGS.get(name, ()), f"--{name.replace('_', '-')}"]))


def _shown_default(info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined or default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default or "empty")


def _type_words(annotation: object) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return "|".join(dict.fromkeys(_type_words(each) for each in arguments if each is not type(None)))
    if origin in (typing.Annotated, list):
        return _type_words(arguments[0])
    if origin is tuple:
        return f"[{', '.join(map(_type_words, arguments))}]"
    if origin is typing.Literal:
        return "|".join(str(each) for each in arguments)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "dict"
    return "path" if annotation is Path else getattr(annotation, "__name__", str(annotation))


def text_keys(model: type[BaseModel]) -> set[str]:
    """Return the settings that hold text or a path. For them, `4.10` is text, such as a model's name, not a number."""
    return {key_of(name, info) for name, info in model.model_fields.items() if _type_words(info.annotation) in TEXTS}


def setting_words(key: str, info: FieldInfo, value: object) -> list[str] | None:
    """Return the words that give a setting a value, such as `--num-repeats 4`; None if no flag can."""
    flag = flag_names(key)[0]
    kinds = (info.annotation, *typing.get_args(info.annotation))
    if bool in kinds and value is True:
        return [flag]
    if info.annotation is bool or is_list(info) or _fixed_size(info):
        return None
    words = flag_words(flag, value, is_text=_type_words(info.annotation) in TEXTS)
    # The value of a flag that also works without one must be part of the same word.
    return ["=".join(words)] if words and bool in kinds and len(words) > 1 else words


def flag_words(flag: str, value: object, *, is_text: bool = False) -> list[str] | None:
    """Return the words that give a flag a value; None if the flag would read another one."""
    text = value if isinstance(value, str) else written(value)
    read = value_of_flag(text, flag, is_text=is_text)
    if (type(read), read) != (type(value), value):
        return None
    return [f"{flag}={text}"] if text.startswith(("-", "+", "~")) or not text else [flag, text]
