"""Measure the comparison of two large runs: seconds, CPU and peak memory of `ng eval compare`.

    python -m bench compare [--tasks 100000] [--repeats 8] [--folder DIR] [settings …]

Writes two runs with lines of 2 to 8 KB to a temporary folder, 8 GB with the defaults, and compares them. Memory is the
highest proportional set size of all processes of the command. Settings such as `--by subject` are passed on.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes import cpu_s, machine_time, pss_mb, tree_of
from bench.tree import NG, TREE

TARGET_S = 30.0
TARGET_MB = 500.0
SIZES = (1_000, 7_000)
"""Characters of an answer. The rest of a line has about 1 KB."""
LINES_AT_ONCE = 1_000
SAMPLE_EVERY_S = 0.2
WORDS = "The answer follows from the second equation, because both sides are even. "


class Cost(NamedTuple):
    """The cost of one comparison."""

    took_s: float
    cpu_s: float
    peak_mb: float


def write_run(path: Path, tasks: int, repeats: int, seed: int, gain: float) -> None:
    """Write a run whose tasks have a chance of success of their own, higher by `gain`."""
    generator, chances = random.Random(seed), random.Random(0)
    texts = [(WORDS * 100)[:size] for size in range(SIZES[0], SIZES[1], 50)]
    question = (WORDS * 10)[:600]
    with path.open("wb") as file:
        lines = []
        for task in range(tasks):
            chance = chances.betavariate(0.6, 0.6) + gain
            for index in range(repeats):
                text = generator.choice(texts)
                lines.append(_line(question, text, task, index, float(generator.random() < chance)))
            if len(lines) >= LINES_AT_ONCE or task == tasks - 1:
                file.write("".join(lines).encode())
                lines = []


def _line(question: str, text: str, task: int, index: int, reward: float) -> str:
    usage = f'{{"input_tokens":200,"output_tokens":{len(text) // 4},"total_tokens":{200 + len(text) // 4}}}'
    message = f'{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}'
    return (
        f'{{"responses_create_params":{{"input":[{{"role":"user","content":"{question}"}}]}},"response":{{"id":"resp_{task}",'
        f'"output":[{message}],"usage":{usage}}},"reward":{reward},"expected_answer":"42","subject":"s{task % 20}",'
        f'"_ng_task_index":{task},"_ng_rollout_index":{index},"agent_ref":{{"name":"math_simple_agent"}}}}\n'
    )


def measure(paths: Sequence[Path], settings: Sequence[str]) -> Cost:
    """Compare the runs in a process of their own."""
    began_at = time.monotonic()
    process = subprocess.Popen(
        [*NG, "eval", "compare", *map(str, paths), *settings], cwd=TREE, stdout=subprocess.DEVNULL
    )
    used_s = peak_mb = 0.0
    while process.poll() is None:
        try:
            pids = tree_of(process.pid)
            peak_mb, used_s = max(peak_mb, pss_mb(pids)), max(used_s, cpu_s(pids))
        except OSError:
            pass  # a process has just ended
        time.sleep(SAMPLE_EVERY_S)
    if process.returncode:
        raise SystemExit(f"the comparison failed with exit code {process.returncode}")
    return Cost(time.monotonic() - began_at, used_s, peak_mb)


def main(words: list[str]) -> int:
    """Write two runs and print the cost of their comparison. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="where to write the runs, instead of the temporary folder")
    known, settings = parser.parse_known_args(words)
    with tempfile.TemporaryDirectory(dir=known.folder) as folder:
        paths = [Path(folder, name) for name in ("a.jsonl", "b.jsonl")]
        for seed, path in enumerate(paths, start=1):
            write_run(path, known.tasks, known.repeats, seed, 0.005 * seed)
        size_gb = sum(path.stat().st_size for path in paths) / 1e9
        before = machine_time()
        cost = measure(paths, settings)
        after = machine_time()
    others = max(0.0, after.busy_s - before.busy_s - cost.cpu_s) / max(0.01, after.total_s - before.total_s)
    print(f"{known.tasks:,} tasks × {known.repeats}, {size_gb:.1f} GB; target {TARGET_S:.0f} s, {TARGET_MB:.0f} MB")
    print(f"{cost.took_s:.1f} s, CPU {cost.cpu_s:.1f} s, {cost.peak_mb:.0f} MB; others used {others:.0%} of the CPU")
    print(json.dumps({**cost._asdict(), "gb": size_gb, "others": round(others, 2)}))
    return int(cost.took_s > TARGET_S or cost.peak_mb > TARGET_MB)
