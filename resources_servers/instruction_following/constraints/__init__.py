"""Programmatically checkable constraints on a text's form: all of IFEval's, 56 of IFBench's 58, and others.

The ids and arguments are the same as in the public data, such as `keywords:frequency` with the arguments `keyword`,
`frequency` and `relation`. The implementations are nemo_gym's own. Each check is a function
`(text, *, arguments) -> bool`. Each module maps ids to its checks in `CHECKS`. Every check takes linear time, even for
an adversarial text.
"""

from resources_servers.instruction_following.constraints.registry import (
    UNSUPPORTED,
    Constraint,
    constraint,
    constraint_ids,
)
from resources_servers.instruction_following.constraints.variants import Followed, followed, loose_variants

__all__ = ["UNSUPPORTED", "Constraint", "Followed", "constraint", "constraint_ids", "followed", "loose_variants"]
