"""Measure the CPU and memory that long contexts, long answers and token ids cost in a rollout, by their size.

    python -m bench payload [--kinds context answer tokens] [--bytes 1000 50000 1000000] [--in-flight 16] [settings …]

A rollout with one tool call carries its payload as text in the row's input (`context`), as an image or a sound there
(`image`, `audio`), as text of the model's last answer (`answer`), or as token ids (`tokens`). Token ids are
`prompt_token_ids`, `generation_token_ids` and `generation_log_probs`, half on each of the model's two answers.
`chat` and `logprobs` are the same token ids behind `vllm_model`: in the message, or as vLLM returns them. `turns` is a
rollout of 20 turns whose prompt ids grow; with 1,600,000 bytes each turn has 1,000 tokens. `chat-turns` is the same
behind `vllm_model`, as vLLM returns them.

The CPU per megabyte (1e6 bytes) is the difference between sizes; it includes sockets and files. Settings such as
`+key=value` are passed to `ng_run`. To compare a switch, use `--against-settings`:
`python -m bench payload --kinds turns --bytes 1600000 --against-settings +key=value`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.cost import Case, Measured, measure, middle_of, shown
from bench.job import ONE_TOOL, Environment

TURNS = 20
TURN_TOKEN_BYTES = 1600
"""The JSON size of one more token per turn in a rollout with 20 turns, whose prompts contain it again."""
CHAT_TOKENS = "+policy_model.responses_api_models.vllm_model.return_token_id_information=true"
WARM_UP_BYTES = 32_000_000
MOST_WARM_UP = 1000


class Carrier(NamedTuple):
    """The environment and endpoint arguments that carry a payload."""

    environment: Environment = ONE_TOOL
    endpoint_words: tuple[str, ...] = ()
    steps: int = 1
    dialect: str = "responses"
    settings: tuple[str, ...] = ()


CARRIERS: dict[str, Callable[[int], Carrier]] = {
    "context": lambda size: Carrier(environment=ONE_TOOL._replace(context_bytes=size)),
    "image": lambda size: Carrier(environment=ONE_TOOL._replace(context_bytes=size, media="image")),
    "audio": lambda size: Carrier(environment=ONE_TOOL._replace(context_bytes=size, media="audio")),
    "answer": lambda size: Carrier(endpoint_words=("--text-bytes", str(size))),
    "tokens": lambda size: Carrier(endpoint_words=("--token-bytes", str(size))),
    "chat": lambda size: Carrier(endpoint_words=("--token-bytes", str(size)), dialect="chat", settings=(CHAT_TOKENS,)),
    "logprobs": lambda size: Carrier(
        endpoint_words=("--token-bytes", str(size), "--as-logprobs"), dialect="chat", settings=(CHAT_TOKENS,)
    ),
    "turns": lambda size: Carrier(
        endpoint_words=("--turn-tokens", str(max(1, size // TURN_TOKEN_BYTES))), steps=TURNS - 1
    ),
    "chat-turns": lambda size: Carrier(
        endpoint_words=("--turn-tokens", str(max(1, size // TURN_TOKEN_BYTES)), "--as-logprobs"),
        steps=TURNS - 1,
        dialect="chat",
        settings=(CHAT_TOKENS,),
    ),
}


def measured(kind: str, size: int, case: Case, settings: Sequence[str]) -> Measured:
    """Measure one run with a payload of `size` bytes."""
    carrier = CARRIERS[kind](size)
    return measure(
        case, carrier.dialect, carrier.steps, [*carrier.settings, *settings],
        environment=carrier.environment, endpoint_words=carrier.endpoint_words,
    )  # fmt: skip


def print_row(kind: str, size: int, run: Measured, cpu_ms_per_mb: float | None) -> None:
    """Print a line of the table."""
    growth = "" if cpu_ms_per_mb is None else f"{cpu_ms_per_mb:.1f}"
    lost = run.rollouts - run.scored
    print(
        f"{kind:<8}{size / 1000:>8.0f}{run.row_bytes / 1000:>9.1f}{run.rollouts_per_s:>12.1f}{run.cpu_ms_in_all:>9.2f}"
        f"{growth:>10}{run.others_share:>8.0%}  {shown(run.cpu_ms, 2)};  {run.pss_mb:.0f} MB "
        f"({shown(run.pss_by_role, 0)})" + (f"  LOST {lost}" if lost else ""),
        flush=True,
    )


def main(words: Sequence[str]) -> int:
    """Measure each kind and size of payload."""
    parser = argparse.ArgumentParser(
        prog="python -m bench payload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=list(CARRIERS), default=["context", "answer", "tokens"])
    parser.add_argument(
        "--bytes", type=int, nargs="+", default=[1000, 50_000, 1_000_000], help="JSON size of the payload of a rollout"
    )
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--rollouts", type=int, default=0, help="rollouts per case; by default enough for 5 s or more")
    parser.add_argument("--runs", type=int, default=1)
    settings = [word for word in words if word.startswith(("+", "~"))]
    options = parser.parse_args([word for word in words if word not in settings])
    sizes = sorted(set(options.bytes))
    print(f"{'payload':<8}{'KB':>8}{'row, KB':>9}{'rollouts/s':>12}{'CPU ms':>9}{'ms per MB':>10}{'others':>8}  "
          f"CPU by role, ms; PSS by role", flush=True)  # fmt: skip
    cases = []
    least: dict[str, Measured] = {}
    for kind, size in itertools.product(options.kinds, sizes):
        warm_up = max(options.in_flight, min(MOST_WARM_UP, WARM_UP_BYTES // size))
        case = Case(options.in_flight, 0.0, options.rollouts, warm_up)
        run = middle_of([measured(kind, size, case, settings) for _ in range(options.runs)])
        growth = None
        if kind in least:
            growth = (run.cpu_ms_in_all - least[kind].cpu_ms_in_all) / ((size - sizes[0]) / 1e6)
        least.setdefault(kind, run)
        print_row(kind, size, run, growth)
        cases.append({
            "kind": kind, "bytes": size, "rollouts": run.rollouts, "rollouts_per_s": run.rollouts_per_s,
            "cpu_ms": run.cpu_ms_in_all, "cpu_ms_per_mb": growth, "by_role": run.cpu_ms, "row_bytes": run.row_bytes,
            "pss_mb": run.pss_mb, "pss_by_role": run.pss_by_role, "others_share": run.others_share,
            "lost": run.rollouts - run.scored,
        })  # fmt: skip
    print(json.dumps({"bench": "payload", "in_flight": options.in_flight, "settings": settings, "cases": cases}))
    return 0
