"""Links of a page, changed so that they work on the site."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!<)([^)#\s]*)((?:#[^)\s]*)?\))")


def relinked(text: str, source: Path, page: str, page_of: Mapping[Path, str], keep: Callable[[Path], str]) -> str:
    """Return a page's text with links that work from its place on the site.

    `source` is the file in which the links were written, `page` its name on the site. `page_of` has the page of each
    source. `keep` copies any other file to the site and returns its name there.
    """

    def changed(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = Path(os.path.normpath(source.parent / target))
        if path.is_dir():
            path /= "README.md"
        if path not in page_of and not path.is_file():
            # Sphinx reports it, with the line.
            return link[0]
        place = page_of.get(path) or keep(path)
        return f"{before}{os.path.relpath(place, Path(page).parent)}{after}"

    return _LINK.sub(changed, text)
