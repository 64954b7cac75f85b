"""The requirements of a server folder, compared with the installed packages without network access."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from nemo_gym.errors import LaunchError

_COMMENT = re.compile(r"(^|\s)#.*$")
_LINE = re.compile(r"(?:(?!#|.*\s#).*\\\n)*.*")
"""A regular expression for a line with those that continue it after a backslash."""
_OPTION = re.compile(r"(-[recf]|--(?:requirement|editable|constraint|find-links))[ =]?\s*(.+)")
"""A regular expression for the options with a path, which is relative to the folder of the file."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*|\.{0,2}/.*|[^@]*\.(?:whl|tar\.gz|zip)")
_OURS = re.compile(r"nemo[-_]gym\s*(\[(?P<extras>[^\]]*)\])?\s*(?=$|[@<>=!~;])|(\.\./)+\.?\.?/?$", re.IGNORECASE)
"""A regular expression for requirements of nemo_gym itself: `nemo-gym[dev] @ ../../`, `nemo-gym>=0.5`, `../../`."""


class Needed(NamedTuple):
    """A requirement and its location. As text, it says how it is not met."""

    requirement: Requirement
    place: str

    def __str__(self) -> str:
        name, installed = self.requirement.name, self._installed
        there = f"{name} {installed} is installed" if installed else f"{name} is not installed"
        return f"{self.place} requires {self.requirement}, but {there}"

    @property
    def is_met(self) -> bool:
        """Whether the environment of this process meets the requirement."""
        installed = self._installed
        return installed is not None and self.requirement.specifier.contains(installed, prereleases=True)

    @property
    def _installed(self) -> str | None:
        try:
            return version(self.requirement.name)
        except PackageNotFoundError:
            return None


def how_to_meet(unmet: Sequence[Needed]) -> str:
    """Return a sentence for each unmet requirement, and the command that installs them all."""
    packages = " ".join(shlex.quote(str(each.requirement)) for each in unmet)
    return f"{'; '.join(map(str, unmet))}. To install it here: pip install {packages}."


class Requirements(NamedTuple):
    """The requirements in a folder's `requirements.txt` or `pyproject.toml`."""

    needed: tuple[Needed, ...]
    lines: tuple[str, ...]
    """The lines for an installer, without the requirements of nemo_gym itself. Their paths are absolute."""
    extras: frozenset[str]
    """The extras of nemo_gym that the folder requests."""

    @classmethod
    def of_folder(cls, folder: Path) -> Requirements:
        """Read the requirements from a folder's `requirements.txt`, or else from its `pyproject.toml`, if it has one.

        Raise `LaunchError` for an invalid line.
        """
        listed, project = folder / "requirements.txt", folder / "pyproject.toml"
        if listed.is_file():
            return cls.of_lines(_lines_of(listed))
        return cls.of_lines(_dependencies_of(project) if project.is_file() else ())

    @classmethod
    def of_lines(cls, lines: Iterable[tuple[str, str]]) -> Requirements:
        """Parse lines, each given with its location."""
        needed: list[Needed] = []
        kept: list[str] = []
        extras: set[str] = set()
        for line, place in lines:
            option, what = _option(line)
            is_address = bool(option or _ADDRESS.fullmatch(what))
            if option in ("", "-e") and (ours := _OURS.match(what)):
                extras |= {extra.strip() for extra in (ours["extras"] or "").split(",") if extra.strip()}
                continue
            if is_address and (path := Path(place).parent / what).exists():
                # Installers read the lines from another folder.
                what = str(path.resolve())
            kept.append(f"{option} {what}".lstrip())
            # The package name of an address is known only after its installation.
            if not is_address and not what.startswith("-"):
                requirement = _parsed(line, place)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    needed.append(Needed(requirement, place))
        return cls(tuple(needed), tuple(kept), frozenset(extras))

    def unmet(self) -> list[Needed]:
        """Return the requirements that the environment of this process does not meet."""
        return [each for each in self.needed if not each.is_met]


def _option(text: str) -> tuple[str, str]:
    """Return the short form of an option with a path, and the path. Without such an option, it is empty."""
    found = _OPTION.fullmatch(text)
    return (f"-{found[1].lstrip('-')[0]}", found[2]) if found else ("", text)


def _lines_of(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the lines of a requirements file, and of those that it includes, each with its location."""
    text = _text_of(path)
    for found in _LINE.finditer(text):
        line = _COMMENT.sub("", re.sub(r"\s*\\(\n\s*|\Z)", " ", found[0])).strip()
        option, what = _option(line)
        if option == "-r":
            included = (path.parent / what).resolve()
            if included not in seen:
                yield from _lines_of(included, seen | {path.resolve(), included})
        elif line:
            yield line, _place(path, text, found.start())


def _dependencies_of(path: Path) -> Iterator[tuple[str, str]]:
    text = _text_of(path)
    try:
        project = tomllib.loads(text).get("project", {})
    except ValueError as error:
        raise LaunchError(f"{path}: cannot be read ({error}). Check the TOML syntax.") from error
    for dependency in project.get("dependencies", ()):
        yield dependency, _place(path, text, max(text.find(dependency), 0))


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(
            f"{path}: cannot be read ({error}). Check the path, the permissions and the encoding (UTF-8)."
        ) from error


def _place(path: Path, text: str, position: int) -> str:
    return f"{path}:{text.count(chr(10), 0, position) + 1}"


def _parsed(line: str, place: str) -> Requirement:
    try:
        # Remove options after a requirement (`--hash=…`), because they are only for the installer.
        return Requirement(re.split(r"\s--", line, maxsplit=1)[0])
    except InvalidRequirement as error:
        problem = str(error).splitlines()[0]
        raise LaunchError(f"{place}: '{line}' is not a requirement ({problem}). Write it like name>=1.0.") from error
