"""Install extras of pyproject.toml with the versions and hashes of the lock files: `extras.py EXTRA,EXTRA… PIP…`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

_ENTRY = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+).*(?:\n .*)*", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OWN_EXTRAS = re.compile(r"nemo-gym\[([^]]+)\]")


def packages_of(extras: str) -> list[str]:
    """Return the names of the packages of comma-separated extras. Exit with a message if an extra is unknown."""
    known = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    names: list[str] = []
    for extra in filter(None, (word.strip() for word in extras.split(","))):
        if extra not in known:
            sys.exit(f"EXTRAS: '{extra}' is not an extra of pyproject.toml. It has: {', '.join(known)}.")
        for requirement in known[extra]:
            own = _OWN_EXTRAS.match(requirement)
            names += packages_of(own[1]) if own else _NAME.findall(requirement)[:1]
    return names


def install(names: list[str], pip: list[str]) -> None:
    """Install packages and everything that they require. Exit with a message if one is not locked."""
    if not names:
        return
    locks = "".join(lock.read_text() for lock in sorted(Path().glob("requirements*.lock")))
    locked = {entry[1]: entry for entry in _ENTRY.finditer(locks)}
    # pip ignores the hashes of constraints, so first ask which packages it would install.
    report, pins, chosen = Path("report.json"), Path("pins.txt"), Path("extras.txt")
    pins.write_text("\n".join(f"{name}=={entry[2]}" for name, entry in locked.items()))
    subprocess.run([*pip, "install", "--dry-run", "--report", str(report), "-c", str(pins), *names], check=True)
    wanted = [_normalized(found["metadata"]["name"]) for found in json.loads(report.read_text())["install"]]
    if unknown := [name for name in wanted if name not in locked]:
        sys.exit(f"EXTRAS: no lock file has {', '.join(unknown)}. Install it in your own image.")
    chosen.write_text("\n".join(locked[name][0] for name in wanted))
    subprocess.run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(chosen)], check=True)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    install(packages_of(sys.argv[1]), sys.argv[2:])
