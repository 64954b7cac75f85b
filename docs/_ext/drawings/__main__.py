"""Write every drawing: `PYTHONPATH=docs/_ext python -m drawings docs/images`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import drawings


def main(folder: Path) -> None:
    for module in pkgutil.iter_modules(drawings.__path__):
        if module.name.startswith("_") or module.name == "canvas":
            continue
        draw = importlib.import_module(f"drawings.{module.name}").draw
        (folder / f"{module.name}.svg").write_text(draw(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
