"""Select an environment of another framework by its address: `--from openenv:ws://127.0.0.1:8000/ws`.

The folder of a server offers a kind of environment with a config `from/<kind>.yaml`. The config finds the address in
`source_address`, the wanted split in `source_split`, and the file for the rows, a dataset of type `example`, in
`source_file`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.config.overrides import Override, override_of_flag
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.settings import SERVER_TYPES
from nemo_gym.errors import ConfigPathNotFoundError, UsageError
from nemo_gym.jsonl import read_rows
from nemo_gym.text import did_you_mean_or_all

FLAG = "--from"
KEY = "outside"
MEANING = "An environment of another framework, as KIND:ADDRESS, such as openenv:ws://127.0.0.1:8000/ws."
ROWS = "source_file"
LONGEST_NAME, LONGEST_VALUE = 40, 100


class Outside(NamedTuple):
    """The config of an environment of another framework, and the keys with its address."""

    config: str
    overrides: list[Override]


def outside_of(text: str, split: str | None) -> Outside:
    """Return what `--from TEXT` selects. `split` is the environment's own name of a split, from `--split`.

    Raise `UsageError` if the text has no address, and `ConfigPathNotFoundError` for an unknown kind.
    """
    kind, _, address = text.partition(":")
    known = _kinds()
    if kind not in known:
        hint = did_you_mean_or_all(kind, known, "kinds")
        raise ConfigPathNotFoundError(f"{FLAG} {text}: no folder offers environments of the kind '{kind}'.{hint}")
    if not address:
        raise UsageError(f"{FLAG} {text}: the address is missing. Write {FLAG} {kind}:ADDRESS")
    # Another environment or split has another file, because runs with either can be resumed.
    digest = hashlib.sha256(f"{text}\0{split or ''}".encode()).hexdigest()[:8]
    name = re.sub(r"\W+", "_", f"{kind}_{address}")[:LONGEST_NAME].strip("_")
    values = {
        "source_address": address,
        "source_split": split,
        ROWS: str(Path.cwd() / "results" / "sources" / f"{name}_{digest}.jsonl"),
    }
    return Outside(known[kind], [override_of_flag(FLAG, key, value) for key, value in values.items()])


def tasks_of(place: str, split: str | None, notice: Callable[[str], None]) -> Iterator[dict[str, object]]:
    """Yield the tasks of an environment of another framework: the numbers and short texts in their rows."""
    from nemo_gym.config.loading import load
    from nemo_gym.data.obtain import Obtainer

    selected = outside_of(place, split)
    run = load([selected.config], selected.overrides, initial=NO_MODEL, needs_variables=False)
    Path(str(run.plain[ROWS])).unlink(missing_ok=True)
    for agent in run.servers_of("responses_api_agents"):
        for dataset in agent.datasets:
            for row in read_rows(Obtainer(run, notice).path_of(agent, dataset)):
                yield {
                    f"{key}.{name}" if name else key: value
                    for key, whole in row.items()
                    if key != "responses_create_params"
                    for name, value in (whole.items() if isinstance(whole, dict) else [("", whole)])
                    if isinstance(value, str | int | float) and len(str(value)) <= LONGEST_VALUE
                }


def _kinds() -> dict[str, str]:
    """Return the config of each kind, relative to the search root that has it. The first root wins."""
    found: dict[str, str] = {}
    for root in paths.search_roots():
        for path in (each for tier in SERVER_TYPES for each in sorted(root.glob(f"{tier}/*/from/*.yaml"))):
            found.setdefault(path.stem, path.relative_to(root).as_posix())
    return found
