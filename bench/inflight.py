"""Find how many rollouts can be in flight at once: raise their number until something fails, and report the cause.

    python -m bench inflight [--in-flight 1024 2048 4096 8192 16384 32768] [--delay 5] [settings …]
    python -m bench inflight --in-flight 64 --row-bytes 5000000 [--carries text|image|audio]

The endpoint holds all requests until every rollout has sent one and `--delay` seconds have passed. It then answers all
at once. At that peak the memory of every process is read. Memory per rollout is the growth of all our processes since
an earlier peak of 64 small rollouts on the same servers. With `--row-bytes`, each row is that long, and the table
compares the memory with it. Each number runs on fresh servers. Settings such as `+replicas=2` are passed to `ng_run`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.held import Held, held_endpoint
from bench.job import ONE_TOOL, Environment, Servers, servers, start_collection
from bench.limits_met import OpenFiles, open_files, reasons
from bench.processes import pss_mb, tree_of

FEW = 64
TARGET_KB = 60.0
TARGET_ROWS = 2
"""The memory of a large row in flight, as a multiple of its length."""
TARGET_IN_FLIGHT = 16_384
LOG_LINES = 20_000


class Peak(NamedTuple):
    """The state of a collection while all its rollouts wait for the endpoint."""

    gathered: int
    gathered_after_s: float
    pss_mb: dict[str, float]
    files: OpenFiles
    scored: int
    took_s: float


class Level(NamedTuple):
    """The result of one number in flight."""

    wanted: int
    peak: Peak
    kb_per_rollout: dict[str, float]
    """By role; empty unless all were in flight together."""
    gave: list[str]
    """Failure reasons, the most frequent first; empty if all were in flight together and scored."""


def hold(up: Servers, held: Held, folder: str, rollouts: int, *, delay_s: float, patience_s: float) -> Peak:
    """Collect that many rollouts at once and measure while all of them wait."""
    held.set_open(False)
    began_at = time.monotonic()
    collecting = start_collection(up, folder, rollouts, rollouts)
    try:
        gathered = held.gather(rollouts, patience_s, lambda: collecting.poll() is None)
        gathered_after_s = time.monotonic() - began_at
        time.sleep(delay_s)
        roles = {**up.pids, "collector": tree_of(collecting.pid)}
        memory, files = pss_by_role(roles), open_files(roles)
        held.set_open(True)
        # The second half of each rollout takes about as long as the first.
        collecting.wait(gathered_after_s * 4 + patience_s * 2)
    except subprocess.TimeoutExpired:
        pass
    finally:
        collecting.kill()
        collecting.wait()
    output = Path(folder, "out.jsonl")
    scored = output.read_bytes().count(b"\n") if output.exists() else 0
    return Peak(gathered, gathered_after_s, memory, files, scored, time.monotonic() - began_at)


def pss_by_role(roles: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the proportional memory by role, in megabytes (1e6 bytes)."""
    found = dict.fromkeys(roles, 0.0)
    for role, pids in roles.items():
        for pid in pids:
            # The kernel may have killed a process that used too much memory.
            with suppress(OSError):
                found[role] += pss_mb([pid])
    return found


def level(wanted: int, options: argparse.Namespace, words: Sequence[str]) -> Level:
    """Measure one number of rollouts in flight on fresh servers."""
    log: deque[str] = deque(maxlen=LOG_LINES)
    with tempfile.TemporaryDirectory() as folder, held_endpoint() as held:
        held.set_open(True)
        with servers(held.url, options.dialect, folder, words) as up:
            threading.Thread(target=lambda: log.extend(up.process.stdout or ()), daemon=True).start()
            base = hold(up, held, folder, FEW, delay_s=0.0, patience_s=options.patience)
            loaded = up._replace(environment=carrier(options)) if options.row_bytes else up
            peak = hold(loaded, held, folder, wanted, delay_s=options.delay, patience_s=options.patience)
        more = wanted if options.row_bytes else max(1, wanted - FEW)
        per_rollout = {role: (size - base.pss_mb.get(role, 0.0)) * 1000 / more for role, size in peak.pss_mb.items()}
        gave = reasons(Path(folder), log, peak.files)
    if peak.gathered < wanted:
        per_rollout = {}
        gave.insert(0, f"{peak.gathered:,} of {wanted:,} reached the endpoint")
    if peak.scored < wanted:
        gave.insert(0, f"{peak.scored:,} of {wanted:,} were scored")
    return Level(wanted, peak, per_rollout, gave if min(peak.gathered, peak.scored) < wanted else [])


def carrier(options: argparse.Namespace) -> Environment:
    """Return the environment whose rows have the wanted length and content."""
    media = None if options.carries == "text" else options.carries
    return ONE_TOOL._replace(context_bytes=options.row_bytes, media=media)


def report(measured: Level, target_kb: float) -> dict[str, Any]:
    """Print a line of the table and the failure reasons, and return them as JSON values."""
    wanted, peak, per_rollout, gave = measured
    kb = round(sum(per_rollout.values()), 1) if per_rollout else None
    fullest = max(peak.files, key=lambda role: peak.files[role].opened / max(1, peak.files[role].allowed))
    files = peak.files[fullest]
    print(
        f"{wanted:>9,}  {peak.gathered:>8,}  {peak.scored:>7,}  {peak.gathered_after_s:>8.1f}  {peak.took_s:>6.1f}"
        f"  {sum(peak.pss_mb.values()):>7.0f}  {'' if kb is None else f'{kb:.1f}':>11}  {target_kb:>6.0f}"
        f"  ({', '.join(f'{role} {each:.1f}' for role, each in per_rollout.items() if abs(each) >= 0.05)})"
        f"  {fullest} {files.opened:,} of {files.allowed:,}",
        flush=True,
    )
    for reason in gave:
        print(f"           gave: {reason}", flush=True)
    return {"in_flight": wanted, "gathered": peak.gathered, "scored": peak.scored, "took_s": round(peak.took_s, 1),
            "gathered_after_s": round(peak.gathered_after_s, 1), "pss_mb": peak.pss_mb, "kb_per_rollout": kb,
            "kb_by_role": per_rollout, "open_files": {role: list(each) for role, each in peak.files.items()},
            "gave": gave}  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Raise the number in flight until something fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bench inflight", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16_384, 32_768])
    parser.add_argument("--delay", type=float, default=5.0, help="seconds to hold all requests")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds without progress before giving up")
    parser.add_argument("--dialect", choices=("responses", "chat"), default="responses")
    parser.add_argument("--row-bytes", type=int, default=0, help="length of a row; by default 600")
    parser.add_argument("--carries", choices=("text", "image", "audio"), default="text")
    # An option with several values would consume the settings that follow it.
    settings = [word for word in words if word.startswith(("+", "~"))]
    options = parser.parse_args([word for word in words if word not in settings])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(f"open files: the limit per process is {soft:,} and can be raised to {hard:,} (ulimit -Hn)")
    print("in flight  gathered   scored  after, s  all, s  PSS, MB  KB/rollout  target  (by role)  most open files")
    cases = []
    for wanted in options.in_flight:
        measured = level(wanted, options, settings)
        target_kb = TARGET_ROWS * options.row_bytes / 1000 if options.row_bytes else TARGET_KB
        cases.append(report(measured, target_kb))
        if measured.gave:
            break
    most = max((each["in_flight"] for each in cases if not each["gave"]), default=0)
    print(f"most in flight, none lost: {most:,} (target {TARGET_IN_FLIGHT:,})")
    print(json.dumps({"bench": "inflight", "settings": settings, "open_files_allowed": [soft, hard], "most": most,
                      "cases": cases}))  # fmt: skip
    return 0
