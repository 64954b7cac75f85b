"""Compare ways to choose one of two engines for the turns of rollouts: speed and hits in the engines' caches.

    python -m bench routing [--sessions 48] [--in-flight 12] [--rounds 3] [--router PATH]

Two real vLLM engines serve a small random model on the CPU, with prefix caching. Sessions of twenty turns are replayed
through the clients of `vllm_model`: each turn sends all tokens so far and some new ones, and pauses for a tool. The
arms choose the engine at random, by a hash of the session, by our routing, or leave it to vllm-router in front
(`--router` is its program). They take turns, in another order each round; the table has the medians of the rounds.

`make engine` installs vLLM. The router is not part of it: pip install vllm-router.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.tree import HERE
from nemo_gym import NeMoGymAsyncOpenAI
from nemo_gym.context.rollout_id import rollout_context
from responses_api_models.vllm_model.routing import Routing

TURNS = 20
NEW_TOKENS = (60, 180)
"""The least and the most tokens that a turn adds to the prompt: the tool's result and the user's message."""
SAMPLED_TOKENS = 16
PAUSE_S = 0.3
"""The mean pause between two turns, for the tool."""
START_S = 900.0
CALL_S = 600.0
PYTHON = HERE / ".venv-engine/bin/python"
MAKE_MODEL = """
import sys
sys.path.insert(0, "examples")
import random_llama, torch
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
folder, made = Path(sys.argv[1]), random_llama.tokenizer()
torch.manual_seed(0)
config = LlamaConfig(vocab_size=len(made), hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
    num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=4096, bos_token_id=None,
    eos_token_id=made.eos_token_id, pad_token_id=made.pad_token_id)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
made.save_pretrained(folder)
"""
_CACHE = re.compile(r"^vllm:prefix_cache_(queries|hits)_total\{[^}]*\} (\S+)$", re.MULTILINE)
Engine = AbstractContextManager[NeMoGymAsyncOpenAI]


class Measured(NamedTuple):
    """One arm in one round."""

    tokens_per_s: float
    """Prompt and sampled tokens of all turns, per second."""
    hit_share: float
    """The share of the prompts' tokens that the engines had in their caches."""
    p95_s: float
    """The 95th percentile of a turn's duration, without its pause."""


@contextmanager
def engines_of(model: Path, count: int, folder: Path) -> Iterator[list[str]]:
    """Start engines until the block ends, and yield their addresses."""
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    urls = [f"http://127.0.0.1:{port}" for port in range(18_400, 18_400 + count)]
    with ExitStack() as stack:
        for url in urls:
            command = [
                PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "m",
                "--port", url.rpartition(":")[2], "--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", "16",
                "--max-model-len", "4096", "--enable-prefix-caching",
            ]  # fmt: skip
            log = stack.enter_context((folder / f"{url.rpartition(':')[2]}.log").open("wb"))
            started = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(_end, started)
            _wait_for(url, started, Path(log.name))
        yield urls


@contextmanager
def router_of(program: Path, engines: Sequence[str], folder: Path) -> Iterator[str]:
    """Start vllm-router in front of the engines until the block ends, and yield its address."""
    url = "http://127.0.0.1:18390"
    command = [program, "--port", "18390", "--prometheus-port", "18391", "--worker-urls", *engines]
    with (folder / "router.log").open("wb") as log:
        started = subprocess.Popen([*command, "--policy", "cache_aware"], stdout=log, stderr=log)
        try:
            _wait_for(url, started, folder / "router.log")
            yield url
        finally:
            _end(started)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise SystemExit(f"{url} did not start within {START_S:.0f} s:\n{log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


async def replay(
    engine_of: Callable[[str], Engine], urls: Sequence[str], *, sessions: int, in_flight: int, seed: int
) -> Measured:
    """Play the sessions through the engines that `engine_of` chooses for each turn."""
    slots, took_s, tokens = asyncio.Semaphore(in_flight), list[float](), 0
    before = await _cached(urls)

    async def play(session: str) -> None:
        nonlocal tokens
        generator = random.Random(f"{seed} {session}")
        prompt: list[int] = []
        async with slots:
            for _ in range(TURNS):
                prompt += generator.choices(range(10, 250), k=generator.randint(*NEW_TOKENS))
                began_at = time.perf_counter()
                with rollout_context(session), engine_of(session) as engine:
                    asked = {"model": "m", "prompt": prompt, "max_tokens": SAMPLED_TOKENS, "ignore_eos": True}
                    await engine.create_completion(**asked, temperature=0)
                took_s.append(time.perf_counter() - began_at)
                tokens += len(prompt) + SAMPLED_TOKENS
                prompt += generator.choices(range(10, 250), k=SAMPLED_TOKENS)
                await asyncio.sleep(generator.expovariate(1 / PAUSE_S))

    began_at = time.perf_counter()
    await asyncio.gather(*(play(f"{seed}-{number}") for number in range(sessions)))
    whole_s = time.perf_counter() - began_at
    queries, hits = (after - earlier for after, earlier in zip(await _cached(urls), before, strict=True))
    return Measured(tokens / whole_s, hits / queries, statistics.quantiles(took_s, n=20)[-1])


async def _cached(urls: Sequence[str]) -> tuple[float, float]:
    """Return how many tokens the engines have looked up in their caches, and how many they found."""
    counts = {"queries": 0.0, "hits": 0.0}
    async with httpx.AsyncClient(trust_env=False) as client:
        for url in urls:
            for name, value in _CACHE.findall((await client.get(f"{url}/metrics")).text):
                counts[name] += float(value)
    return counts["queries"], counts["hits"]


def arms_of(urls: Sequence[str], router: str | None) -> dict[str, Callable[[], Callable[[str], Engine]]]:
    """Return a function for each arm, which returns a new chooser of engines."""

    def clients(addresses: Sequence[str]) -> list[NeMoGymAsyncOpenAI]:
        return [
            NeMoGymAsyncOpenAI(base_url=f"{url}/v1", api_key="none", session_header="X-Session-ID", timeout_s=CALL_S)
            for url in addresses
        ]

    def at_random() -> Callable[[str], Engine]:
        known, generator = clients(urls), random.Random(0)
        return lambda session: nullcontext(generator.choice(known))

    def by_hash() -> Callable[[str], Engine]:
        known = clients(urls)
        return lambda session: nullcontext(known[random.Random(session).randrange(len(known))])

    def ours() -> Callable[[str], Engine]:
        return Routing(clients(urls), is_shared=False).engine_of

    def of_router() -> Callable[[str], Engine]:
        (client,) = clients([str(router)])
        return lambda session: nullcontext(client)

    arms = {"random": at_random, "hash": by_hash, "ours": ours}
    return arms | {"vllm-router": of_router} if router else arms


def main(words: Sequence[str]) -> int:
    """Start the engines, let the arms take turns, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench routing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=48)
    parser.add_argument("--in-flight", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--router", type=Path, help="the program vllm-router; without it, this arm is left out")
    options = parser.parse_args(words)
    if not PYTHON.exists():
        print(f"{PYTHON} does not exist. Run: make engine", file=sys.stderr)
        return 1
    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        subprocess.run([PYTHON, "-c", MAKE_MODEL, folder / "model"], cwd=HERE, check=True)
        urls = stack.enter_context(engines_of(folder / "model", 2, folder))
        router = stack.enter_context(router_of(options.router, urls, folder)) if options.router else None
        arms = arms_of(urls, router)
        for number in range(options.rounds):
            names = list(arms)
            for place, name in enumerate(names[number % len(names) :] + names[: number % len(names)]):
                # Sessions of another arm must not be in the caches.
                seed = number * len(names) + place
                measured = asyncio.run(
                    replay(arms[name](), urls, sessions=options.sessions, in_flight=options.in_flight, seed=seed)
                )
                found.setdefault(name, []).append(measured)
                print(f"round {number + 1}, {name}: {measured}", file=sys.stderr, flush=True)
    print(f"{'arm':<14}{'tokens/s':>10}{'of the best':>13}{'cache hits':>12}{'p95 of a turn, s':>18}")
    medians = {name: Measured(*map(statistics.median, zip(*each, strict=True))) for name, each in found.items()}
    best = max(each.tokens_per_s for each in medians.values())
    for name, each in medians.items():
        share = each.tokens_per_s / best
        print(f"{name:<14}{each.tokens_per_s:>10,.0f}{share:>13.3f}{each.hit_share:>12.1%}{each.p95_s:>18.2f}")
    print(json.dumps({"bench": "routing", **{name: each._asdict() for name, each in medians.items()}}))
    return 0
