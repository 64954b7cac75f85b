"""Fields that a folder's config class declares under the name of a setting that we added later.

This exists only for server folders that were written for the published package: the folder's own meaning wins.
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
    """Return those of a block's keys that belong to the folder's config class and not to us.

    The folder's modules are read, not imported, because a configuration is loaded before its servers start. A config
    class is one whose base class has a name that ends with `Config`.
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
