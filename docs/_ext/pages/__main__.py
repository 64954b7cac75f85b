"""Build the site: `PYTHONPATH=docs/_ext python -m pages OUTPUT`, as `make docs` does."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main

from pages.staging import Stage

if __name__ == "__main__":
    repository = Path(__file__).parents[3]
    output = Path(sys.argv[1])
    # Shipped servers are imported, to read their settings.
    sys.path.insert(0, str(repository))
    stage = Stage(repository, output / "source")
    stage.fill()
    sys.exit(
        main(["-W", "--keep-going", "--quiet", "-c", str(repository / "docs"), "-d", str(output / "doctrees"),
              str(stage.folder), str(output / "html")])
    )  # fmt: skip
