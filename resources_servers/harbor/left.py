"""Select the files to grade from those that an agent left."""

from __future__ import annotations

import sys
from pathlib import PurePosixPath

from resources_servers.harbor.task import HarborTask
from resources_servers.harbor.tree import Entry, Read, read_archive, withhold_hidden

STARTS_WITH_PROGRAMS = frozenset({
    "conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml",
    ".coveragerc", ".pdbrc", ".bashrc", ".bash_profile", ".bash_login", ".profile", ".inputrc",
})  # fmt: skip
"""Files that Python, pytest or a shell reads by itself, in any folder."""
MAY_CONFIGURE_PYTEST = ("pyproject.toml", "setup.cfg", "tox.ini")
SHADOWED = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", *sys.stdlib_module_names})
"""Modules that a test finds in its working folder first."""


def graded_files(archive: bytes, task: HarborTask) -> Read:
    """Return the files to grade of those in an agent's archive, and the reason for each file that is withheld.

    Files that the programs of the tests read by themselves are those of the task, or left out. Such a file is the
    agent's only if the instruction names it. Raise `TreeError` for a malformed archive.
    """
    left = read_archive(archive)
    before = task.files
    for name in {*left.tree, *before}:
        is_changed = left.tree.get(name) != before.get(name)
        if not is_changed or not any(
            _is_read_by_tests(name, tree[name]) for tree in (left.tree, before) if name in tree
        ):
            continue
        path = PurePosixPath(name)
        if (name if path.name == "__init__.py" else path.name) in task.instruction:
            continue
        left.tree.pop(name, None)
        left.withheld[name] = "the programs of the tests would read it by themselves"
        if name in before:
            for above in map(str, path.parents):
                if above in left.tree and not left.tree[above].is_folder:
                    del left.tree[above]
                    left.withheld[above] = "the task has a folder there"
            left.tree[name] = before[name]
            left.withheld[name] += ", so it is the task's"
    withhold_hidden(left)
    return left


def _is_read_by_tests(name: str, entry: Entry) -> bool:
    path = PurePosixPath(name)
    if path.name in STARTS_WITH_PROGRAMS or path.suffix == ".pth" or "__pycache__" in path.parts:
        return True
    if path.name in MAY_CONFIGURE_PYTEST:
        return entry.content is None or b"pytest" in entry.content
    is_package = path.name == "__init__.py" and len(path.parts) == 2
    is_module = path.suffix in (".py", ".pyc", ".so") and len(path.parts) == 1
    return (is_module or is_package) and path.parts[0].partition(".")[0] in SHADOWED
