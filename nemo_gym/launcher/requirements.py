"""The requirements of a server folder, compared with the installed packages without network access."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from nemo_gym.errors import LaunchError

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)[ =]?\s*(?P<path>.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)[ =]?\s*(?P<what>.+)")
_SOURCE = re.compile(r"(?:-i|-f|--(?:index-url|extra-index-url|find-links|no-index|trusted-host))(?:[ =].*)?")
"""A regular expression for the options that determine where an installer searches for packages."""
_FILE = re.compile(r"(?P<option>-c|--constraint|-f|--find-links)[ =]?\s*(?P<path>.+)")
"""A regular expression for the options with a path that is relative to the file of the requirements."""
_OURS = re.compile(r"nemo[-_]gym\s*(\[(?P<extras>[^\]]*)\])?\s*(?=$|[@<>=!~;])|(\.\./)+\.?\.?/?$", re.IGNORECASE)
"""A regular expression for requirements of nemo_gym itself: `nemo-gym[dev] @ ../../`, `nemo-gym>=0.5`, `../../`."""


class Needed(NamedTuple):
    requirement: Requirement
    place: str
    """The location of the requirement, as `file:line`."""


class Unmet(NamedTuple):
    """A requirement that the environment does not meet."""

    needed: Needed
    installed: str | None
    """The installed version, or None if the package is not installed."""

    def __str__(self) -> str:
        name = self.needed.requirement.name
        there = f"{name} {self.installed} is installed" if self.installed else f"{name} is not installed"
        return f"{self.needed.place} requires {self.needed.requirement}, but {there}"


def how_to_meet(unmet: Sequence[Unmet]) -> str:
    """Return a sentence for each unmet requirement, and the command that installs them all."""
    packages = " ".join(shlex.quote(str(each.needed.requirement)) for each in unmet)
    return f"{'; '.join(map(str, unmet))}. To install it here: pip install {packages}."


class Requirements(NamedTuple):
    """The requirements in a folder's `requirements.txt` or `pyproject.toml`."""

    needed: tuple[Needed, ...]
    lines: tuple[str, ...]
    """The lines for an installer, without the requirements of nemo_gym itself."""
    extras: frozenset[str]
    """The extras of nemo_gym that the folder requests."""

    @classmethod
    def of_folder(cls, folder: Path) -> Requirements:
        """Read the requirements from a folder's `requirements.txt`, or else from its `pyproject.toml`, if it has one.

        Raise `LaunchError` for an invalid line.
        """
        listed, project = folder / "requirements.txt", folder / "pyproject.toml"
        if listed.is_file():
            return _of_lines(list(_lines_of(listed)))
        if project.is_file():
            return _of_lines(list(_dependencies_of(project)))
        return cls((), (), frozenset())

    @property
    def sources(self) -> list[str]:
        """The lines that determine where an installer searches for packages, such as `--extra-index-url …`."""
        return [line for line in self.lines if _SOURCE.fullmatch(line)]

    @property
    def constraints(self) -> list[Path]:
        """The local files that limit the versions of packages."""
        return [Path(line.partition(" ")[2]) for line in self.lines if re.match(r"(?:-c|--constraint) /", line)]

    def unmet(self) -> list[Unmet]:
        """Return the requirements that the environment of this process does not meet."""
        found = []
        for needed in self.needed:
            installed = _installed(needed.requirement.name)
            if installed is None or not needed.requirement.specifier.contains(installed, prereleases=True):
                found.append(Unmet(needed, installed))
        return found


class _Line(NamedTuple):
    text: str
    file: Path
    number: int


def _lines_of(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[_Line]:
    """Yield the lines of a requirements file, including those of the files that it includes."""
    joined, begun = "", 0
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(
            f"{path}: cannot be read ({error}). Check the path, the permissions and the encoding (UTF-8)."
        ) from error
    for number, raw in enumerate(lines, start=1):
        begun = begun if joined else number
        joined += _COMMENT.sub("", raw).strip()
        if joined.endswith("\\"):
            joined = joined[:-1].rstrip() + " "
            continue
        line, joined = _Line(joined.strip(), path, begun), ""
        if include := _INCLUDE.fullmatch(line.text):
            included = (path.parent / include["path"]).resolve()
            if included not in seen:
                yield from _lines_of(included, seen | {path.resolve(), included})
        elif line.text:
            yield line


def _dependencies_of(path: Path) -> Iterator[_Line]:
    try:
        text = path.read_text("utf-8")
        project = tomllib.loads(text).get("project", {})
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path}: cannot be read ({error}). Check the permissions and the TOML syntax.") from error
    for dependency in project.get("dependencies", ()):
        at = text.find(dependency)
        yield _Line(str(dependency), path, text.count("\n", 0, at) + 1 if at >= 0 else 1)


def _of_lines(lines: list[_Line]) -> Requirements:
    needed: list[Needed] = []
    kept: list[str] = []
    extras: set[str] = set()
    for line in lines:
        editable = _EDITABLE.fullmatch(line.text)
        what = editable["what"] if editable else line.text
        if ours := _OURS.match(what.strip()):
            extras |= {extra.strip() for extra in (ours["extras"] or "").split(",") if extra.strip()}
            continue
        kept.append(_located(line))
        if editable or line.text.startswith("-") or _is_address(line.text):
            # Do not check this line, because it is an option, or its package name is known only after installation.
            continue
        requirement = _read(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed.append(Needed(requirement, f"{line.file}:{line.number}"))
    return Requirements(tuple(needed), tuple(kept), frozenset(extras))


def _located(line: _Line) -> str:
    """Return the line with an absolute path, because installers read the lines from another folder."""
    found = _FILE.fullmatch(line.text)
    if found and (path := line.file.parent / found["path"]).exists():
        return f"{found['option']} {path.resolve()}"
    return line.text


def _is_address(text: str) -> bool:
    is_archive = "@" not in text and text.endswith((".whl", ".tar.gz", ".zip"))
    return is_archive or bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|\.{0,2}/", text))


def _read(line: _Line) -> Requirement:
    # Remove options after a requirement (`--hash=…`), because they are only for the installer.
    text = re.split(r"\s--", line.text, maxsplit=1)[0]
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        problem = str(error).splitlines()[0]
        raise LaunchError(
            f"{line.file}:{line.number}: '{line.text}' is not a requirement ({problem}). Write it like name>=1.0."
        ) from error


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
