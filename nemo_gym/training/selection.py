"""Keep only the groups that teach something, and sample as many as a step needs (dynamic sampling, as in DAPO)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nemo_gym.training.group import Group

Keep = Callable[[Group], bool]


@dataclass
class Selection:
    """The selection of one step: how many groups it needs, and how many of the sampled ones were kept and dropped."""

    wanted: float
    """The number of groups to keep; infinity to sample all rows."""
    keep: Keep
    most: float
    """The most groups to sample, as a multiple of `wanted`."""
    kept: int = 0
    dropped: int = 0
    carried: int = 0
    """The kept groups that an earlier step has sampled."""
    cancelled: int = 0
    """The groups whose rollouts were still running when the step had enough."""

    @property
    def dropped_share(self) -> float:
        """The share of the groups sampled in this step that were not kept; 0 if none was sampled."""
        sampled = self.kept - self.carried + self.dropped
        return self.dropped / sampled if sampled else 0.0

    @property
    def may_begin(self) -> float:
        """How many groups may begin by now: as many as the share kept so far suggests, and at first `wanted`."""
        sampled = self.kept - self.carried + self.dropped
        if math.isinf(self.wanted):
            return math.inf
        # Always allow another group once all have ended, because `limit` alone ends the step.
        share = max((sampled - self.dropped + 1) / (sampled + 1), 1 / self.most)
        return sampled + math.ceil((self.wanted - self.kept) / share)

    @property
    def limit(self) -> int | None:
        """The most groups to sample; None if there is no limit."""
        return None if math.isinf(self.wanted) else math.ceil(self.most * self.wanted)

    @property
    def is_complete(self) -> bool:
        return self.kept >= self.wanted

    def takes(self, group: Group) -> bool:
        """Return whether to keep a sampled group, and count it."""
        is_kept = self.keep(group)
        self.kept += is_kept
        self.dropped += not is_kept
        return is_kept
