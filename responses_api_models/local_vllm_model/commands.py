"""The command lines and environment variables of engines."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

EngineName = Literal["vllm", "sglang", "llama_cpp"]
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
PROGRAMS: dict[EngineName, str] = {
    "vllm": "vllm serve {model} --host {host} --port {port}",
    "sglang": "python3 -m sglang.launch_server --model-path {model} --host {host} --port {port}",
    "llama_cpp": "llama-server {model_source} {model} --host {host} --port {port}",
}
MODULES: dict[EngineName, str] = {
    "vllm": "vllm.entrypoints.openai.api_server --model {model} --host {host} --port {port}",
    "sglang": "sglang.launch_server --model-path {model} --host {host} --port {port}",
}
"""The engines that are Python modules, with their arguments, for an interpreter of their own."""
NAME_OPTIONS: dict[EngineName, str] = {
    "vllm": "--served-model-name", "sglang": "--served-model-name", "llama_cpp": "--alias"
}  # fmt: skip
"""Each engine's option for the name by which requests select the model."""


class Place(NamedTuple):
    """The address and the index of one replica."""

    host: str
    port: int
    replica: int


def command_of(
    engine: EngineName,
    place: Place,
    *,
    model: str,
    served_name: str | None,
    args: Mapping[str, object],
    folder: Path,
    template: str | Sequence[str] | None = None,
    python: Path | None = None,
) -> list[str]:
    """Return the argument list of the command that starts a replica.

    llama.cpp loads `model` from `folder` if that file exists, and otherwise from Hugging Face. `template` replaces the
    default command. Its placeholders `{model}`, `{host}`, `{port}` and `{replica}` are filled in. `python` runs the
    engine's module instead of its program.
    """
    values = {
        "{model}": model,
        "{model_source}": "--model" if (folder / model).is_file() else "--hf-repo",
        "{host}": place.host,
        "{port}": str(place.port),
        "{replica}": str(place.replica),
    }
    chosen = PROGRAMS[engine] if template is None else template
    words = []
    if python is not None:
        words, chosen = [str(python), "-m"], MODULES[engine]
    for word in shlex.split(chosen) if isinstance(chosen, str) else chosen:
        for name, value in values.items():
            word = word.replace(name, value)  # noqa: PLW2901
        words.append(word)
    name = [NAME_OPTIONS[engine], served_name] if served_name and template is None else []
    return [*words, *name, *(word for key, value in args.items() for word in _option(key, value))]


def _option(key: str, value: object) -> list[str]:
    """Return the arguments for one option: only the flag if the value is true, and nothing if it is false or null."""
    option = f"--{key.replace('_', '-')}" if not key.startswith("-") else key
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, list):
        return [option, *map(str, value)]
    return [option, orjson.dumps(value).decode() if isinstance(value, dict) else str(value)]


def environment_of(
    own: Mapping[str, str], *, api_key: str, replica: int, gpus: int | None, python: Path | None = None
) -> dict[str, str]:
    """Return a replica's environment variables. They hold the API key, because other users can see command lines."""
    environment = {**os.environ, "VLLM_API_KEY": api_key, "LLAMA_API_KEY": api_key}
    if python is not None:
        # Engines start programs of their virtual environment, such as ninja.
        environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    if gpus is not None:
        visible = [each for each in os.environ.get(VISIBLE_GPUS, "").split(",") if each]
        first, last = replica * gpus, (replica + 1) * gpus
        mine = visible[first:last] if visible else [str(number) for number in range(first, last)]
        environment[VISIBLE_GPUS] = ",".join(mine)
    return {**environment, **own}
