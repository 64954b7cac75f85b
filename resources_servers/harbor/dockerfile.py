"""Read the Dockerfiles that only place files: each other one needs an image."""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass, field

from resources_servers.harbor.toml import Unsupported
from resources_servers.harbor.tree import Entry, Tree

SYSTEMS = ("debian", "ubuntu", "python")
"""The images for which this machine's system is used."""
JOINED = re.compile(r"\\[ \t]*\n")


@dataclass
class Placed:
    """The result of a Dockerfile: the image that it starts from, and the files and variables that it adds."""

    image: str = ""
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, Entry] = field(default_factory=dict)
    """The entries by their path without the first slash."""


def placed_by(text: str, place: str, context: Tree) -> Placed:
    """Return what a Dockerfile places from its `context`, the tree of its folder.

    `place` is its path, for messages. Raise `Unsupported` for an instruction that is not followed here.
    """
    placed = Placed()
    for line in JOINED.sub(" ", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.strip().partition(" ")
        try:
            if problem := _follow(name.upper(), rest.strip(), placed, context):
                raise Unsupported(f"{place}: {line.strip()!r} is not supported: {problem}.")
        except ValueError as error:
            raise Unsupported(f"{place}: {line.strip()!r} is not supported: {error}.") from error
    if not placed.image:
        raise Unsupported(f"{place}: FROM is missing.")
    return placed


def _follow(name: str, rest: str, placed: Placed, context: Tree) -> str | None:
    """Follow one instruction. Return the reason if that is not possible."""
    words = shlex.split(rest)
    if name == "FROM":
        system = rest.partition("@")[0].partition(":")[0].removeprefix("docker.io/").removeprefix("library/")
        if placed.image or system not in SYSTEMS or len(words) > 1:
            return f"this machine's system is used instead of one image of {', '.join(SYSTEMS)}, not of others"
        placed.image = rest
    elif name == "LABEL":
        return None
    elif name not in ("WORKDIR", "ENV", "COPY"):
        return "only FROM, WORKDIR, COPY, ENV and LABEL are followed, because no image is built"
    elif "$" in rest or rest.startswith(("[", "--")) or "<<" in rest:
        return "variables, options, lists and here-documents are not read"
    elif name == "WORKDIR":
        placed.workdir = posixpath.normpath(posixpath.join(placed.workdir, *words))
        placed.files.setdefault(placed.workdir[1:], Entry())
    elif name == "ENV":
        if not all("=" in word for word in words):
            return "write NAME=VALUE"
        placed.env |= dict(word.split("=", 1) for word in words)
    else:
        return _copy(words, placed, context)
    return None


def _copy(words: list[str], placed: Placed, context: Tree) -> str | None:
    *sources, target = words
    to = posixpath.normpath(posixpath.join(placed.workdir, target))[1:]
    is_folder = target.endswith("/") or len(sources) > 1 or placed.files.get(to, Entry(content=b"")).is_folder
    for source in (posixpath.normpath(each).lstrip("/") or "." for each in sources):
        entry = context.get(source)
        if source != "." and entry is None:
            return f"environment/{source} does not exist"
        if entry is None or entry.is_folder:
            # Docker copies the content of a folder, not the folder itself.
            start = "" if source == "." else f"{source}/"
            placed.files[to] = Entry()
            placed.files |= {
                posixpath.join(to, name.removeprefix(start)): each
                for name, each in context.items()
                if name.startswith(start)
            }
        else:
            placed.files[posixpath.join(to, posixpath.basename(source)) if is_folder else to] = entry
    return None
