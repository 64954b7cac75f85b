"""Select rollouts with the query of a page's URL, and write their lines to a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, urlencode

from nemo_gym.errors import UsageError
from nemo_gym.jsonl import write_chunks
from nemo_gym.viewer.filters import Filter
from nemo_gym.viewer.index.place import Place
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.run_view import RunView

VIEW_NAMES = ("sort", "order", "column")
"""Query parameters of a page's URL that do not belong to the filter."""


@dataclass(frozen=True)
class Selection:
    """A selection of rollouts: a filter, a sort order, and the maximum number of rollouts per run."""

    filter: Filter
    query: str = ""
    """The filter as a query string."""
    sort: str = "task"
    order: Literal["asc", "desc"] = "asc"
    limit: int | None = None

    @classmethod
    def parse(cls, text: str, limit: int | None = None) -> Self:
        """Parse `outcome=failed&sort=reward`, the query of a page's URL. Raise `UsageError` if it is invalid."""
        pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
        view = {name: value for name, value in pairs if name in VIEW_NAMES}
        order = view.get("order", "asc")
        if order not in ("asc", "desc"):
            raise UsageError(f"--filter order={order}: expected asc or desc.")
        rest = urlencode([pair for pair in pairs if pair[0] not in VIEW_NAMES])
        return cls(Filter.parse(rest), rest, view.get("sort", "task"), "desc" if order == "desc" else "asc", limit)

    def places(self, view: RunView) -> Iterator[Place]:
        """Yield the positions of the selected rollouts of a run, in the order of the selection."""
        places = view.index.places(self.filter, self.sort, is_descending=self.order == "desc")
        return islice(places, self.limit)


def write_selection(library: Library, selection: Selection, path: Path) -> int:
    """Write the lines of the selected rollouts of all runs, unchanged, and return their number."""
    library.finish()
    return write_chunks(path, (place.raw() + b"\n" for view in library.runs() for place in selection.places(view)))
