"""When a process looks for garbage: not at every breath, since requests leave little that counting does not free."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""So many more objects made than freed start a look at the young ones; the interpreter's 700 are used up by one
request."""
OLDER, OLDEST = 20, 50
"""So many looks at the younger ones come before a look at the next older; with thousands of rollouts under way, a
look at the oldest takes longer than many requests."""


def settle_memory() -> None:
    """Set aside what is there for good, and look for garbage less often; called once a server is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDEST)
