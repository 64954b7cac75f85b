"""Make rows: words with some of their synonyms, in an order of their own.

python resources_servers/example_multi_step/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from nemo_gym import exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.example_multi_step.app import synonym_value

INSTRUCTION = (
    "You have two tools. Look up the value of each synonym with get_synonym_value, then hand in all values with "
    "extract_synonym_values, in the order in which the synonyms are listed. Never look up the word itself."
)
FEWEST = 2
"""With one synonym there would be no order to keep."""
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


def prepare(output: Path, count: int = 100, seed: int = 0) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows."""
    rng = random.Random(f"synonyms {seed}")
    write_rows(output, (_row(number, rng) for number in range(count)))
    return output


def _row(number: int, rng: random.Random) -> dict[str, Any]:
    word = rng.choice(sorted(SYNONYMS))
    synonyms = rng.sample(SYNONYMS[word], rng.randint(FEWEST, len(SYNONYMS[word])))
    task = f"The word is '{word}'. Its synonyms, in order: {', '.join(synonyms)}. Hand in their values."
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": task}]
    return {
        "id": number,
        "responses_create_params": {"input": messages},
        "expected_synonyms": synonyms,
        "expected_synonym_values": [synonym_value(synonym) for synonym in synonyms],
        "minefield_label": word,
        "minefield_label_value": synonym_value(word),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the example_multi_step environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
