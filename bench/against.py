"""Compare two commits or settings by alternating runs, so that drift of the machine does not look like a change.

    python -m bench rollouts --against HEAD~3 [--in-flight 64] [--runs 5] […]
    python -m bench rollouts --against-settings +replicas=2 [--in-flight 64] [--runs 5] […]

Any measurement whose JSON line contains `cases` can be compared; all other arguments are passed on to it. A is the
other commit, or this tree without the settings. B is the working tree, with the settings. The order is A B A B, and
each ratio compares two adjacent runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.tree import HERE, TREE_ENV_VAR, product_environment

MEASURES = ("rollouts_per_s", "cpu_ms", "cpu_us", "pss_mb", "ready_s", "cpu_s", "kb_per_rollout")
CASE_KEYS = {
    "kind": "{}",
    "in_flight": "{} in flight",
    "delay_s": "delay {:g} s",
    "steps": "{} steps",
    "bytes": "{} bytes",
}

Case = Mapping[str, Any]


class Side(NamedTuple):
    """One side of a comparison."""

    name: str
    tree: Path
    settings: Sequence[str]


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Extract a commit into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(["git", "archive", commit], cwd=HERE, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=files, check=True)
        yield Path(folder)


def title_of(commit: str) -> str:
    """Return a commit's short hash and subject."""
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%h %s", commit, "--"],
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if shown.returncode:
        raise SystemExit(f"--against {commit}: git does not know this commit. Pass a branch, a tag or a hash")
    return shown.stdout.strip()


def measured(side: Side, name: str, words: Sequence[str]) -> list[Case]:
    """Run a measurement once and return its cases in order."""
    command = [sys.executable, "-m", "bench", name, "--runs", "1", *words, *side.settings]
    environment = {**os.environ, TREE_ENV_VAR: str(side.tree)}
    ended = subprocess.run(command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{side.name}: {' '.join(command[1:])} failed (exit code {ended.returncode})")
    cases = json.loads(ended.stdout.splitlines()[-1])["cases"]
    if isinstance(cases, dict):
        return [{"name": case, **values} for case, values in cases.items()]
    return list(cases)


def label(case: Case) -> str:
    """Return a case's name, or the values that distinguish it from others."""
    words = [form.format(case[key]) for key, form in CASE_KEYS.items() if case.get(key) is not None]
    return " ".join([case["name"]] if "name" in case else words)


class Ratio(NamedTuple):
    """The ratio B : A of one measure in one case."""

    case: str
    measure: str
    a: float
    b: float
    ratio: float
    least: float
    most: float


def ratios(pairs: Sequence[tuple[list[Case], list[Case]]]) -> Iterator[Ratio]:
    """Yield medians over the pairs of runs, with the spread of their ratios."""
    for at, case in enumerate(pairs[0][0]):
        for measure in MEASURES:
            values = [(a[at].get(measure), b[at].get(measure)) for a, b in pairs]
            known = [(a, b) for a, b in values if a and b is not None]
            if known:
                each = [b / a for a, b in known]
                a, b = (statistics.median(side) for side in zip(*known, strict=True))
                yield Ratio(label(case), measure, a, b, statistics.median(each), min(each), max(each))


def compare(a: Side, b: Side, name: str, words: Sequence[str], runs: int) -> None:
    """Measure both sides in turn and print the table."""
    print(f"A: {a.name}\nB: {b.name}", flush=True)
    pairs = []
    for run in range(runs):
        pairs.append((measured(a, name, words), measured(b, name, words)))
        print(f"{run + 1} of {runs} pairs", file=sys.stderr, flush=True)
    found = list(ratios(pairs))
    width = max(len(each.case) for each in found) + 2
    print(f"{'case':<{width}}{'measure':<16}{'A':>10}{'B':>10}{'B : A':>8}  min–max of {runs}")
    for each in found:
        print(
            f"{each.case:<{width}}{each.measure:<16}{each.a:>10.2f}{each.b:>10.2f}{each.ratio:>8.3f}"
            f"  {each.least:.3f}–{each.most:.3f}"
        )
    header = {"bench": f"{name} against", "a": a.name, "b": b.name, "runs": runs, "words": list(words)}
    print(json.dumps({**header, "ratios": [each._asdict() for each in found]}))


def main_of(name: str, words: Sequence[str]) -> int:
    """Run the comparison that the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--against", help="commit to compare with")
    parser.add_argument("--against-settings", nargs="+", default=[], help="settings for B only, such as +replicas=2")
    parser.add_argument("--runs", type=int, default=5, help="number of pairs")
    options, rest = parser.parse_known_args(words)
    if options.against is None:
        with_them = Side(f"with {' '.join(options.against_settings)}", HERE, options.against_settings)
        compare(Side("this tree", HERE, []), with_them, name, rest, options.runs)
        return 0
    title = title_of(options.against)
    with tree_of(options.against) as tree:
        asked = [sys.executable, "-c", "import nemo_gym; print(nemo_gym.__file__)"]
        environment = product_environment(tree, tree)
        found = subprocess.run(asked, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        if not Path(found.strip()).is_relative_to(tree):
            raise SystemExit(f"--against {options.against}: nemo_gym was imported from {found.strip()} instead")
        compare(Side(title, tree, []), Side("this tree", HERE, options.against_settings), name, rest, options.runs)
    return 0
