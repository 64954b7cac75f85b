"""`python -m bench <name>` runs one of the measurements."""

import importlib
import sys
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if path.stem not in ("processes", "endpoint")
)


def main() -> int:
    """Run the measurement that the first word names, with the others as its own words."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(f"usage: python -m bench {{{','.join(NAMES)}}} …", file=sys.stderr)
        return 2
    module = importlib.import_module(f"bench.{sys.argv[1]}")
    return int(module.main(sys.argv[2:]))


sys.exit(main())
