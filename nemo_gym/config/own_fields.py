"""Name clashes between settings that this package added and fields of a server folder's config class.

A folder that was written for the published package may use such a name for a field of its own. The field then wins.
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
"""The settings of every server block that the published package does not have."""


def own_fields(folder: Path, keys: Collection[object]) -> frozenset[str]:
    """Return the keys of a block that are in `ADDED_SETTINGS`, but that the folder's config class defines itself.

    The folder's modules are parsed, not imported, because a configuration is loaded before its servers start. A class
    counts as a config class if the name of a base class ends with `Config`.
    """
    added = ADDED_SETTINGS.intersection(map(str, keys))
    # Most blocks have none of these keys, so no file is read for them.
    place = find(folder, Path.is_dir) if added else None
    return added.intersection(_declared_in(place)) if place else frozenset()


def _declared_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # the server's start reports it
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(_name_of(base).endswith("Config") for base in node.bases):
                yield from (
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )


def _name_of(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
