"""Constraints on the form of a text that a program can check: those of IFEval, 56 of IFBench's 58, and more.

Ids and arguments are those of the public data (`keywords:frequency` with `keyword`, `frequency` and `relation`); the
checks are our own. Each check is a function `(text, *, its arguments) -> bool`, listed under its ids in its module's
`CHECKS`. Every check takes linear time, even for a hostile text.
"""

from resources_servers.instruction_following.constraints.registry import (
    UNSUPPORTED,
    Constraint,
    constraint,
    constraint_ids,
)
from resources_servers.instruction_following.constraints.variants import Followed, followed, loose_variants

__all__ = ["UNSUPPORTED", "Constraint", "Followed", "constraint", "constraint_ids", "followed", "loose_variants"]
