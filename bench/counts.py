"""Count the costly operations of a rollout with one tool call, per process, independent of machine load.

    python -m bench counts [--check | --write]

The job is that of `bench rollouts`, with 64 rollouts in flight. Parsed JSON, validations and event loop tasks are
counted per rollout; connections are counted over the life of a process (see counting.py). Some rollouts carry token
ids: the growth of the parsed JSON shows how often these are parsed. `--check` fails if a count is above its limit in
counts.json. `--write` sets the limits to 3 % above the current counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import counting
from bench.job import LAUNCHER, Servers, collect, endpoint, servers
from bench.processes import tree_of

CEILINGS = Path(__file__).with_name("counts.json")
ROLES = ("agent", "resources", "model", "collector")
IN_FLIGHT = 64
TOKEN_BYTES = 1_000_000
TITLES = {
    "json_parses": "texts parsed as JSON, per rollout",
    "json_bytes": "bytes parsed as JSON, per rollout",
    "validations": "pydantic validations, per rollout",
    "tasks": "event loop tasks, per rollout",
    "connections": "connections opened, in all",
    "token_parses": "times that token ids are parsed",
}
MARGIN = 1.03
LEAST_MARGIN = 0.05
KEPT = 0.9
OTHER_CONNECTIONS = 8
SETTLING_S = 0.3

Counts = Mapping[str, Mapping[str, float]]
"""By role, then by name."""


class Load(NamedTuple):
    """Two collections; the additional rollouts of the second one are counted."""

    few: int = 100
    rollouts: int = 500
    token_bytes: int = 0


TOKENS = Load(few=4, rollouts=12, token_bytes=TOKEN_BYTES)


def counts_of(words: Sequence[str] = ()) -> Counts:
    """Return all counts, including those of token ids."""
    plain, tokens = count(Load(), words), count(TOKENS, words)
    return {
        role: {**own, "token_parses": max(0.0, tokens[role]["json_bytes"] - own["json_bytes"]) / TOKEN_BYTES}
        for role, own in plain.items()
    }


def count(load: Load, words: Sequence[str] = ()) -> Counts:
    """Start servers that count, and collect rollouts from them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        endpoint(0.0, 1, ("--token-bytes", str(load.token_bytes))) as url,
        counting_processes(folder) as cells,
        servers(url, "responses", folder, words) as up,
    ):
        few = _collected(up, folder, cells, load.few)
        before = counting.read(cells)
        many = _collected(up, folder, cells, load.few + load.rollouts)
        after = counting.read(cells)
        roles = {pid: role for role, pids in up.pids.items() for pid in pids if role != LAUNCHER}
    counts: dict[str, dict[str, float]] = {}
    for pid, role in roles.items():
        totals = counts.setdefault(role, dict.fromkeys(counting.NAMES, 0.0))
        for name in counting.NAMES:
            # A connection is reused after the rollout that opened it.
            spent = after[pid][name] if name == "connections" else after[pid][name] - before[pid][name]
            totals[name] += spent if name == "connections" else spent / (load.few + load.rollouts)
    # The difference removes the one-time work of a collector.
    counts["collector"] = {name: (many[name] - few[name]) / load.rollouts for name in counting.NAMES}
    counts["collector"]["connections"] = many["connections"]
    return counts


@contextmanager
def counting_processes(folder: str) -> Iterator[Path]:
    """Yield the folder of counts; every Python process started within the block counts."""
    hooks, cells = Path(folder, "hooks"), Path(folder, "cells")
    package = hooks / "bench_counting-0.dist-info"
    package.mkdir(parents=True)
    cells.mkdir()
    shutil.copy(counting.__file__, hooks / "sitecustomize.py")
    # pydantic looks for plugins among the installed packages.
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-counting\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[pydantic]\nbench = sitecustomize:plugin\n")
    before = dict(os.environ)
    places = [str(hooks), *filter(None, [before.get("PYTHONPATH")])]
    os.environ.update({counting.FOLDER_ENV_VAR: str(cells), "PYTHONPATH": os.pathsep.join(places)})
    try:
        yield cells
    finally:
        os.environ.clear()
        os.environ.update(before)


def _collected(up: Servers, folder: str, cells: Path, rollouts: int) -> dict[str, int]:
    """Collect once and return the counts of the collector and its children."""
    known = counting.read(cells).keys() | set(tree_of(up.process.pid))
    _, scored = collect(up, folder, rollouts, IN_FLIGHT)
    if scored != rollouts:
        raise SystemExit(f"{scored} of {rollouts} rollouts were scored, so the counts cannot be compared")
    # Servers may still be closing sessions.
    time.sleep(SETTLING_S)
    new = [each for pid, each in counting.read(cells).items() if pid not in known]
    return {name: sum(each[name] for each in new) for name in counting.NAMES}


def ceiling(name: str, counted: float) -> float:
    """Return a limit slightly above a count. Connections vary, so round them up to multiples of 64.

    Each may be opened twice, because an idle one may be closed between the two collections on a busy machine.
    """
    if name == "connections":
        return 2 * math.ceil(max(0.0, counted - OTHER_CONNECTIONS) / IN_FLIGHT) * IN_FLIGHT + OTHER_CONNECTIONS
    return math.ceil(max(counted * MARGIN, counted + LEAST_MARGIN) * 100) / 100


def complaints(counts: Counts, ceilings: Counts) -> list[str]:
    """Describe counts above their limit, and roles without limits or counts."""
    found = [f"{role}: bench/counts.json has no limits for this role" for role in counts.keys() - ceilings.keys()]
    found += [f"{role}: nothing was counted" for role in ceilings if not any(counts.get(role, {}).values())]
    for role, allowed in ceilings.items():
        for name, most in allowed.items():
            counted = counts.get(role, {}).get(name, 0.0)
            if counted > most:
                found.append(f"{role}: {TITLES[name]}: {shown(counted)}, of {shown(most)} allowed")
    return found


def gains(counts: Counts, ceilings: Counts) -> list[str]:
    """Describe counts so far below their limit that a later increase would not be noticed."""
    return [
        f"{role}: {TITLES[name]}: {shown(counted)}, of {shown(ceilings[role][name])} allowed"
        for role, own in counts.items()
        for name, counted in own.items()
        if role in ceilings and ceiling(name, counted) < ceilings[role][name] * KEPT
    ]


def shown(number: float) -> str:
    """Format a number with its significant digits."""
    return f"{number:,.0f}" if number >= 1000 or number == int(number) else f"{number:.2f}"


def print_table(counts: Counts, ceilings: Counts) -> None:
    """Print one line per count and one column per role, with the limits."""
    print(f"{'counted (allowed)':<36}" + "".join(f"{role:>20}" for role in counts))
    for name, title in TITLES.items():
        cells = []
        for role, counted in counts.items():
            most = ceilings.get(role, {}).get(name)
            cells.append(shown(counted[name]) + ("" if most is None else f" ({shown(most)})"))
        print(f"{title:<36}" + "".join(f"{cell:>20}" for cell in cells))


def main(words: Sequence[str]) -> int:
    """Count, and check or write the limits on request."""
    parser = argparse.ArgumentParser(
        prog="python -m bench counts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--check", action="store_true", help="fail if a count is above its limit")
    doing.add_argument("--write", action="store_true", help="write new limits")
    parser.add_argument("settings", nargs="*", help="overrides for ng_run, such as +replicas=2")
    given = parser.parse_args(words)
    counts = counts_of(given.settings)
    counts = {role: counts[role] for role in sorted(counts, key=(*ROLES, *counts).index)}
    if given.write:
        made = {role: {name: ceiling(name, each) for name, each in own.items()} for role, own in counts.items()}
        CEILINGS.write_text(json.dumps(made, indent=2) + "\n")
    ceilings: Counts = {} if given.settings else json.loads(CEILINGS.read_text())
    print_table(counts, ceilings)
    print(json.dumps({"bench": "counts", "in_flight": IN_FLIGHT, "rollouts": Load().rollouts, "counts": counts}))
    if not given.check:
        return 0
    found = complaints(counts, ceilings)
    for gain in gains(counts, ceilings):
        print(f"less than before: {gain} (python -m bench counts --write lowers the limit)", file=sys.stderr)
    for complaint in found:
        print(f"MORE THAN BEFORE: {complaint}", file=sys.stderr)
    if found:
        print("Reduce these counts. If the increase is intended, write new limits and give the reason in the commit: "
              "python -m bench counts --write", file=sys.stderr)  # fmt: skip
    return 1 if found else 0
