"""Server folders, `<root>/<type>/<implementation>`. The implementation may be a path, such as `chat/simulation`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym.config.settings import SERVER_TYPES

REQUIREMENTS = ("requirements.txt", "pyproject.toml")
"""Every server folder contains one of these files. A subfolder without them holds data or modules of its parent."""
DEEPEST = 4


class ServerFolder(NamedTuple):
    """The parts of a server folder's path."""

    root: Path
    """The folder on the import path, so that modules have names such as `resources_servers.mcqa.app`."""
    tier: str
    implementation: str

    @property
    def name(self) -> str:
        return f"{self.tier}/{self.implementation}"

    @classmethod
    def of(cls, folder: Path) -> ServerFolder:
        """Split a path at its nearest parent that has the name of a server type, or else two levels up."""
        for above in folder.parents:
            if above.name in SERVER_TYPES:
                return cls(above.parent, above.name, folder.relative_to(above).as_posix())
        return cls(folder.parent.parent, folder.parent.name, folder.name)


def nested_folders(tier_folder: Path) -> Iterator[Path]:
    """Yield the server folders that are two or more levels below the folder of a server type."""
    for depth in range(2, DEEPEST + 1):
        found = {path.parent for name in REQUIREMENTS for path in tier_folder.glob("/".join(["*"] * depth + [name]))}
        for folder in sorted(found):
            if not any(part == "tests" or part[0] in "._" for part in folder.relative_to(tier_folder).parts):
                yield folder
