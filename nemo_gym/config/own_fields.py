"""Name clashes between settings that this package added and fields of a server folder's config class.

A folder that was written for release 0.7 may define a field with such a name. The field then has priority.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from nemo_gym.paths import find

ADDED_SETTINGS = frozenset({
    "advertised_host", "advertised_port", "blocking_threads", "group_verification", "isolated", "max_request_bytes",
    "max_request_depth", "max_requests_in_flight", "max_requests_queued", "ray", "session_idle_s", "workers",
})  # fmt: skip
"""The settings that this package added to every server block, and that release 0.7 does not have."""


def own_fields(folder: Path, keys: Collection[object]) -> frozenset[str]:
    """Return those `keys` that are in `ADDED_SETTINGS` and that the folder's config class also defines.

    The folder's modules are parsed, not imported, because a configuration is loaded before its servers start. A class
    counts as a config class if the name of a base class ends with `Config`.
    """
    added = ADDED_SETTINGS.intersection(map(str, keys))
    # Read the files only if the block has such a key, because most blocks do not.
    place = find(folder, Path.is_dir) if added else None
    return added.intersection(_declared_in(place)) if place else frozenset()


def _declared_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            # Skip the file here, because starting the server reports the error.
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(_name_of(base).endswith("Config") for base in node.bases):
                yield from (
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )


def _name_of(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
