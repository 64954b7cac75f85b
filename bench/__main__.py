"""Run a measurement with `python -m bench <name>`; `--against` compares two commits or settings."""

import importlib
import sys
from pathlib import Path

from bench import against

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if "\ndef main(words: " in path.read_text("utf-8")
)
"""The modules that can be run; the others are shared code."""


def main() -> int:
    """Run the measurement named by the first argument with the remaining arguments."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(f"usage: python -m bench {{{','.join(NAMES)}}} … [--against COMMIT | --against-settings SETTING …]",
              file=sys.stderr)  # fmt: skip
        return 2
    name, *words = sys.argv[1:]
    if any(word.startswith("--against") for word in words):
        return against.main_of(name, words)
    module = importlib.import_module(f"bench.{name}")
    return int(module.main(words))


sys.exit(main())
