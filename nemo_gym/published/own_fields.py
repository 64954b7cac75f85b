"""Name clashes between settings that this package added and fields of a server folder's config class.

A folder that was written for release 0.7 may define a field with such a name. The field then has priority.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from nemo_gym.paths import find


def own_fields(folder: Path, added: frozenset[str]) -> frozenset[str]:
    """Return those of the `added` settings that the folder's config class also defines.

    The folder's modules are parsed, not imported, because a configuration is loaded before its servers start. A class
    counts as a config class if the name of a base class ends with `Config`.
    """
    place = find(folder, Path.is_dir)
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
