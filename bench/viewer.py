"""Measure the viewer on a large run: indexing, the first page, filters, orders, searches, and the server's memory.

    python -m bench viewer [--rollouts 100000] [--bytes 3000] [--folder DIR]

The run is generated: eight repeats per task, tool calls, token counts and eight scalar fields. A million rollouts of
3,000 bytes are a file of 3 GB. With `--folder`, the file is kept there and used again.

The index is made by one thread in this process. The rates are per second and per second of CPU, next to that of merely
parsing each line, because other processes slow both down. Then `ng view` serves the run, and each request is
timed twice: `first` includes the results that the server keeps, `again` is the same request once more. A column of
the table is an order, in both directions. The memory is the peak of the server's process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import httpx
import orjson

from bench.tree import HERE, NG, product_environment
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.viewer.index import builder
from nemo_gym.viewer.index.store import Store

REPEATS = 8
TIMEOUT_S = 600.0
SAMPLE_BYTES = 300_000_000
"""How much of the file the parser alone reads."""
WORDS = (
    "the", "of", "a", "weather", "city", "answer", "tool", "rectangle", "sides", "number", "result", "because",
    "therefore", "compute", "value", "question", "option", "letter", "perimeter", "length", "width", "think", "step",
)  # fmt: skip
TOOLS = ("search", "get_weather", "calculate", "open_page", "run_code")
COLUMNS = (
    "task", "agent", "outcome", "reward", "steps", "tool_calls", "input_tokens", "output_tokens", "seconds", "bytes",
    "difficulty", "metadata.subset", "extracted_answer", "uuid",
)  # fmt: skip
FILTERS = {
    "reward": {"reward_min": "0.5"},
    "tool": {"tool": "search"},
    "field": {"field": "metadata.subset=algebra"},
    "three at once": {"reward_min": "0.5", "tool": "search", "field": "metadata.subset=algebra"},
    "three, sorted": {"outcome": "scored", "steps_max": "3", "tool": "run_code", "sort": "output_tokens"},
}
SEARCHES = {"rare words": "rectangle sides perimeter length", "no hit": "zebra", "common word": "therefore"}


class Timed(NamedTuple):
    """The milliseconds of one request, sent twice."""

    first: float
    again: float


def write_run(path: Path, rollouts: int, size: int) -> None:
    """Write a run with so many rollouts of about so many bytes."""
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=length)) for length in (12, 25, 50) for _ in range(400)]
    with path.open("wb", buffering=1 << 20) as file:
        for number in range(rollouts):
            line = orjson.dumps(_rollout(generator, texts, *divmod(number, REPEATS)))
            filler = max(0, size - len(line) - 1)
            file.write(line.replace(b'"instructions":""', b'"instructions":"%b"' % (b"x" * filler)) + b"\n")


def _rollout(generator: random.Random, texts: list[str], task: int, repeat: int) -> dict[str, object]:
    items: list[object] = []
    for call in range(generator.randrange(4)):
        name, query = generator.choice(TOOLS), json.dumps({"q": generator.choice(texts)})
        items.append({"type": "function_call", "call_id": f"c{call}", "name": name, "arguments": query})
        items.append({"type": "function_call_output", "call_id": f"c{call}", "output": generator.choice(texts)})
    content = [{"type": "output_text", "text": generator.choice(texts), "annotations": []}]
    items.append({"type": "message", "role": "assistant", "content": content, "status": "completed"})
    usage = {"input_tokens": generator.randrange(9000), "output_tokens": generator.randrange(900)}
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": f"Task {task}: {texts[task % len(texts)]}"}],
            "instructions": "",
        },
        "response": {"id": f"resp_{task}_{repeat}", "model": "m", "output": items, "usage": usage},
        "reward": float(generator.random() < 0.4),
        "expected_answer": generator.choice("ABCD"),
        "extracted_answer": generator.choice("ABCD"),
        "metadata": {"subset": generator.choice(("algebra", "geometry", "logic")), "dataset": "bench"},
        "difficulty": generator.random(),
        "uuid": f"task-{task}",
        "attempt_score": generator.random(),
        "grading_mode": "strict",
        "agent_ref": {"type": "responses_api_agents", "name": f"agent_{task % 3}"},
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "_ng_seconds": round(generator.expovariate(0.1), 3),
    }


def index_rates(results: Path, cache: Path) -> dict[str, float]:
    """Index the run, and return megabytes per second of time and of CPU."""
    paths, megabytes = builder.paths_of(RunFiles(results=results)), results.stat().st_size / 1e6
    store = Store(results, cache)
    began_at, cpu = time.perf_counter(), time.process_time()
    with store.open() as db:
        while builder.index_some(db, paths, time.monotonic() + TIMEOUT_S):
            pass
    cpu_s, took_s = time.process_time() - cpu, time.perf_counter() - began_at
    return {
        "mb": megabytes,
        "mb_per_s": megabytes / took_s,
        "mb_per_cpu_s": megabytes / cpu_s,
        "parse_mb_per_cpu_s": _parse_rate(results),
        "index_mb": store.path.stat().st_size / 1e6,
    }


def _parse_rate(results: Path) -> float:
    cpu, size = time.process_time(), 0
    with results.open("rb", buffering=1 << 20) as file:
        for line in file:
            orjson.loads(line)
            size += len(line)
            if size > SAMPLE_BYTES:
                break
    return size / 1e6 / (time.process_time() - cpu)


class Viewer(NamedTuple):
    """A running `ng view` with one run."""

    client: httpx.Client
    pid: int
    run: str

    def timed(self, path: str, **query: str) -> Timed:
        """Send a request twice."""
        return Timed(self._ms(path, query), self._ms(path, query))

    def _ms(self, path: str, query: dict[str, str]) -> float:
        began_at = time.perf_counter()
        self.client.get(f"/api/{path}?{urlencode({'run': self.run, **query})}").raise_for_status()
        return 1000 * (time.perf_counter() - began_at)

    def peak_mb(self) -> float:
        """Return the peak resident memory of the server."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM"))


@contextmanager
def viewer_of(results: Path, cache: Path) -> Iterator[Viewer]:
    """Serve a run with `ng view` until the block ends."""
    environment = product_environment(results.parent) | {"XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        [*NG, "view", str(results), "--no-open"], cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = next(word for line in process.stdout for word in line.split() if word.startswith("http"))
            with httpx.Client(base_url=address.partition("/?")[0], timeout=TIMEOUT_S, follow_redirects=True) as client:
                client.get(address).raise_for_status()
                (run,) = client.get("/api/runs").raise_for_status().json()["runs"]
                yield Viewer(client, process.pid, run["id"])
        finally:
            process.terminate()


def measure(viewer: Viewer) -> dict[str, Timed]:
    """Time the requests of the pages."""
    found = {"first page": viewer.timed("rollouts"), "list of runs": viewer.timed(f"runs/{viewer.run}")}
    for column in COLUMNS:
        found[f"sort {column}"] = viewer.timed("rollouts", sort=column)
        found[f"sort {column} desc"] = viewer.timed("rollouts", sort=column, order="desc")
    for name, query in FILTERS.items():
        found[f"filter {name}"] = viewer.timed("rollouts", **query)
    found["deep page"] = viewer.timed("rollouts", sort="seconds", offset="50000")
    for name, words in SEARCHES.items():
        found[f"search {name}"] = viewer.timed("rollouts", words=words)
    return found | {"facets": viewer.timed("facets"), "overview": viewer.timed("overview")}


def main(words: Sequence[str]) -> int:
    """Make the run, index it, serve it and time requests."""
    parser = argparse.ArgumentParser(
        prog="python -m bench viewer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=3000, help="size of each line")
    parser.add_argument("--folder", type=Path, help="keep the run in this folder")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        results = folder / f"viewer_{options.rollouts}_{options.bytes}.jsonl"
        if not results.exists():
            partial = results.with_suffix(".partial")
            write_run(partial, options.rollouts, options.bytes)
            partial.rename(results)
        cache = Path(scratch, "cache")
        rates = index_rates(results, cache / "nemo_gym" / "viewer")
        print(
            f"{options.rollouts:,} rollouts, {rates['mb']:.0f} MB: {rates['mb_per_s']:.0f} MB/s, "
            f"{rates['mb_per_cpu_s']:.0f} MB per second of CPU (parsing alone {rates['parse_mb_per_cpu_s']:.0f}); "
            f"the index has {rates['index_mb']:.0f} MB; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        with viewer_of(results, cache) as viewer:
            timed = measure(viewer)
            peak_mb = viewer.peak_mb()
    print(f"{'request':<28}{'first, ms':>10}{'again, ms':>10}")
    for name, each in timed.items():
        print(f"{name:<28}{each.first:>10.0f}{each.again:>10.0f}")
    print(f"peak memory of the server: {peak_mb:.0f} MB")
    cases = {name: each._asdict() for name, each in timed.items()}
    print(json.dumps({"bench": "viewer", "rollouts": options.rollouts, **rates, "peak_mb": peak_mb, "ms": cases}))
    return 0
