"""Profile one role during a collection with py-spy: functions by own time and by total time.

    python -m bench profile [--role agent] [--in-flight 64] [--seconds 8] [--steps 1] [--delay 0]
        [--token-bytes 0] [settings …]

Every process of the role is sampled during the one-tool job. Only CPU time counts, not waiting. Own time covers the
function itself and the C code that it calls; the event loop with its sockets appears as `Runner.run`. Total time
includes all calls. Settings such as `+key=value` are passed to `ng_run`. Only this command needs py-spy.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.job import LAUNCHER, MODELS, collect, endpoint, servers, start_collection
from bench.processes import tree_of

RATE_PER_S = 250
WARM_UP = 300
FASTEST_PER_S = 12_000
"""An upper bound on the collection speed, so that the rollouts last for the whole sampling."""
BEGIN_TIMEOUT_S = 30.0
WHOLE = 0.99
"""A function in at least this share of the samples is an outer frame and is not listed."""
ROLES = ("agent", "resources", "model", "collector", LAUNCHER)


class Profile(NamedTuple):
    """The number of samples of each function."""

    samples: int
    own: Counter[str]
    total: Counter[str]


def profile_of(folded: Iterable[str]) -> Profile:
    """Add up lines of the form `outermost;…;innermost count`."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for line in folded:
        stack, count = line.rsplit(" ", 1)
        # Drop the line number, so that a function has one entry.
        frames = [frame.rsplit(":", 1)[0].removesuffix(")") for frame in stack.split(";")]
        frames = [f"{frame})" if "(" in frame else frame for frame in frames if not frame.startswith("process ")]
        own[frames[-1]] += int(count)
        total.update(dict.fromkeys(frames, int(count)))
        samples += int(count)
    return Profile(samples, own, total)


def recorded(py_spy: str, pids: Sequence[int], seconds: int, folder: Path) -> list[str]:
    """Sample the processes at the same time and return their stacks."""
    outputs = [folder / f"{pid}.folded" for pid in pids]
    running = [
        subprocess.Popen(
            [py_spy, "record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(RATE_PER_S),
             "--format", "raw", "--output", str(output)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for pid, output in zip(pids, outputs, strict=True)
    ]  # fmt: skip
    errors = [each.communicate()[1] for each in running]
    if not all(output.exists() for output in outputs):
        raise SystemExit(f"py-spy recorded nothing. Run it as root or allow it to trace processes:\n{errors[0]}")
    return [line for output in outputs for line in output.read_text().splitlines()]


def print_top(title: str, counts: Counter[str], samples: int, top: int) -> list[dict[str, object]]:
    """Print the functions with the most samples, and return them with their shares."""
    print(f"\n{title}")
    shares: list[dict[str, object]] = []
    for function, count in counts.most_common(top):
        print(f"{count / samples:7.1%}  {function}")
        shares.append({"function": function, "share": round(count / samples, 4)})
    return shares


def main(words: Sequence[str]) -> int:
    """Sample a role and print its functions."""
    parser = argparse.ArgumentParser(
        prog="python -m bench profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--role", choices=ROLES, default="agent")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1, help="tool calls per rollout")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds per answer of the endpoint")
    parser.add_argument("--dialect", choices=sorted(MODELS), default="responses")
    parser.add_argument("--token-bytes", type=int, default=0, help="token ids in the endpoint's answers")
    parser.add_argument("--top", type=int, default=25)
    settings = [word for word in words if word.startswith(("+", "~"))]
    options = parser.parse_args([word for word in words if word not in settings])
    py_spy = shutil.which("py-spy", path=Path(sys.executable).parent) or shutil.which("py-spy")
    if py_spy is None:
        raise SystemExit("python -m bench profile needs py-spy, which is not installed: pip install py-spy")
    with (
        tempfile.TemporaryDirectory() as folder,
        endpoint(options.delay, options.steps, ["--token-bytes", str(options.token_bytes)]) as url,
        servers(url, options.dialect, folder, settings) as up,
    ):
        if options.role != "collector" and not up.pids.get(options.role):
            raise SystemExit(f"no process has the role {options.role}. Choose one of: {', '.join(up.pids)}, collector")
        collect(up, folder, WARM_UP, options.in_flight)
        collecting = start_collection(up, folder, options.seconds * FASTEST_PER_S, options.in_flight)
        try:
            _wait_for_rows(Path(folder, "out.jsonl"), collecting)
            pids = tree_of(collecting.pid) if options.role == "collector" else up.pids[options.role]
            found = profile_of(recorded(py_spy, pids, options.seconds, Path(folder)))
        finally:
            collecting.kill()
            collecting.wait()
    print(f"{options.role}: {found.samples} samples in {options.seconds} s of {len(pids)} process(es), "
          f"{RATE_PER_S} samples/s each")  # fmt: skip
    own = print_top("own time", found.own, found.samples, options.top)
    parts = Counter({function: count for function, count in found.total.items() if count < found.samples * WHOLE})
    total = print_top("total time", parts, found.samples, options.top)
    print(json.dumps({"bench": "profile", "role": options.role, "in_flight": options.in_flight, "settings": settings,
                      "samples": found.samples, "own": own, "total": total}))  # fmt: skip
    return 0


def _wait_for_rows(output: Path, collecting: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + BEGIN_TIMEOUT_S
    while not (output.exists() and output.stat().st_size):
        if collecting.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the collection did not start:\n{output.with_name('collector.log').read_text()[-2000:]}")
        time.sleep(0.05)
