r"""Generate rows with long archives of invented reports, letters, logs, minutes and inventories, and with questions.

python resources_servers/long_context/prepare.py --count 20 --lengths 128k --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import NamedTuple

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.long_context import lookups, overviews, sifting
from resources_servers.long_context.archive import write_archive
from resources_servers.long_context.tasks import Kind, Task

TOKENS = {
    "4k": 4_000, "8k": 8_000, "16k": 16_000, "32k": 32_000, "64k": 64_000, "128k": 128_000, "256k": 256_000,
    "512k": 512_000, "1m": 1_000_000,
}  # fmt: skip
CHARACTERS_PER_TOKEN = 3.1
"""The number of characters per token, as measured on these archives with seven tokenizers. See README.md."""
KINDS: dict[str, Kind] = {
    "one_needle": lookups.one_needle,
    "many_needles": lookups.many_needles,
    "similar_keys": lookups.similar_keys,
    "variable_chain": lookups.variable_chain,
    "nth_answer": lookups.nth_answer,
    "count": overviews.count,
    "aggregate": overviews.aggregate,
    "event_order": overviews.event_order,
    "relevance": sifting.relevance,
    "citations": sifting.citations,
}
BEFORE = "Read the archive below. After it comes a question that its passages answer.\n\n"
AFTER = "This is the end of the archive.\n\n{question}\n\n{form}"
FORM = "End with a line of the form 'Answer: …' that holds nothing but the {form}."
CITING = (
    "End with two lines. The first has the form 'Sources: P10000, P20000': the ids of all passages on which the "
    "answer rests, and no others. The second has the form 'Answer: …' and holds nothing but the {form}."
)


class Assignment(NamedTuple):
    """A task whose archive has not been written yet."""

    kind: str
    bucket: str
    task: Task
    seed: int
    """The seed for the text around the task's needles."""


def prepare(
    output: Path,
    count: int = 500,
    seed: int = 0,
    *,
    lengths: Sequence[str] = ("4k", "8k", "16k"),
    subset: Sequence[str] = (),
    split: Split | None = None,
) -> Path:
    """Write `count` rows and return their path.

    Rows cycle through the kinds. After each cycle, the next length is used.

    lengths: size of the prompts in tokens, from 4k to 1m; repeat the flag for several
    subset: only rows of this subset; repeat the flag for several
    split: only rows of this split; the two splits have no question in common, at any length

    Raises `DataError` for an unknown length or subset; then nothing is written.
    """
    _check("lengths", lengths, TOKENS)
    _check("subset", subset, KINDS)
    drawn = _assignments(random.Random(f"long context {seed}"), lengths, subset or tuple(KINDS))
    # Write archives only for the chosen rows, because writing is slow and most rows are not in the validation split.
    chosen = split_rows(drawn, split, count, key=lambda each: each.task.question)
    write_rows(output, map(row_of, chosen))
    return output


def _check(name: str, values: Sequence[str], known: dict[str, object]) -> None:
    if isinstance(values, str):
        raise DataError(f"{name}: '{values}' is not a list. Write it as a list, such as [{next(iter(known))}].")
    for value in values:
        if value not in known:
            raise DataError(f"{name}: '{value}' does not exist. Choose from: {', '.join(known)}.")
    if name == "lengths" and not values:
        raise DataError(f"{name}: the list is empty. Choose from: {', '.join(known)}.")


def _assignments(rng: random.Random, lengths: Sequence[str], kinds: Sequence[str]) -> Iterator[Assignment]:
    levels = {bucket: level for level, bucket in enumerate(TOKENS, start=1)}
    for bucket, kind in cycle(product(lengths, kinds)):
        yield Assignment(kind, bucket, KINDS[kind](rng, levels[bucket]), rng.getrandbits(64))


def row_of(assignment: Assignment) -> JsonObject:
    """Return the row of an assignment, with a newly written archive in the prompt."""
    kind, bucket, task, seed = assignment
    form = (CITING if task.asks_for_sources else FORM).format(form=task.form)
    after = AFTER.format(question=task.question, form=form)
    length = int(TOKENS[bucket] * CHARACTERS_PER_TOKEN) - len(BEFORE) - len(after)
    archive = write_archive(random.Random(seed), task.needles, task.reserved, length)
    prompt = f"{BEFORE}{archive.text}{after}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "question": task.question,
        "expected_answer": task.answer,
        "grader": task.grader,
        "sources": archive.sources if task.asks_for_sources else None,
        "distractors": list(task.distractors),
        "subset": kind,
        "length_bucket": bucket,
        "approximate_tokens": round(len(prompt) / CHARACTERS_PER_TOKEN),
        # Set the depth only for a single fact, because several facts have different depths.
        "depth": round(archive.depths[0], 4) if len(archive.depths) == 1 else None,
    }


if __name__ == "__main__":
    run_prepare(prepare)
