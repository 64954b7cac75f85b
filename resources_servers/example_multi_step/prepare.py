"""Generate rows: words with some of their synonyms in random order.

python resources_servers/example_multi_step/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.example_multi_step.app import synonym_value

INSTRUCTION = (
    "You have two tools. Look up the value of each synonym with get_synonym_value, then hand in all values with "
    "extract_synonym_values, in the order in which the synonyms are listed. Never look up the word itself."
)
FEWEST = 2
"""Minimum number of synonyms of a word, because the order of a single synonym cannot be wrong."""
SYNONYMS = {
    "angry": ("cross", "furious", "irate", "livid", "mad"),
    "begin": ("commence", "initiate", "launch", "open", "start"),
    "big": ("great", "huge", "immense", "large", "vast"),
    "brave": ("bold", "daring", "fearless", "gallant", "valiant"),
    "calm": ("peaceful", "placid", "quiet", "serene", "tranquil"),
    "cold": ("chilly", "freezing", "frosty", "icy", "wintry"),
    "end": ("cease", "close", "conclude", "finish", "stop"),
    "fast": ("brisk", "quick", "rapid", "speedy", "swift"),
    "happy": ("cheerful", "content", "glad", "joyful", "merry"),
    "hard": ("arduous", "difficult", "stiff", "taxing", "tough"),
    "odd": ("curious", "peculiar", "queer", "strange", "unusual"),
    "small": ("little", "minute", "petite", "tiny", "wee"),
    "smart": ("bright", "clever", "keen", "sharp", "shrewd"),
    "sad": ("blue", "gloomy", "mournful", "sorrowful", "unhappy"),
    "walk": ("amble", "march", "saunter", "stride", "stroll"),
}


def prepare(output: Path, count: int = 100, seed: int = 0, split: Split | None = None) -> Path:
    """Write `count` rows and return their path. The same seed makes the same rows."""
    rows = split_rows(_rows(random.Random(f"synonyms {seed}")), split, count)
    write_rows(output, ({"id": number, **row} for number, row in enumerate(rows)))
    return output


def _rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        yield _row(rng)


def _row(rng: random.Random) -> dict[str, Any]:
    word = rng.choice(sorted(SYNONYMS))
    synonyms = rng.sample(SYNONYMS[word], rng.randint(FEWEST, len(SYNONYMS[word])))
    task = f"The word is '{word}'. Its synonyms, in order: {', '.join(synonyms)}. Hand in their values."
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
    return {
        "responses_create_params": {"input": messages},
        "expected_synonyms": synonyms,
        "expected_synonym_values": [synonym_value(synonym) for synonym in synonyms],
        "minefield_label": word,
        "minefield_label_value": synonym_value(word),
    }


if __name__ == "__main__":
    run_prepare(prepare)
