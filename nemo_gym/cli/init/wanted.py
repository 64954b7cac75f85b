"""The user's choices for a new environment or benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nemo_gym.data.scripts import BENCHMARKS, ENVIRONMENTS

Kind = Literal["environment", "benchmark"]
Profile = Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]

FOLDER_OF: dict[Kind, str] = {"environment": ENVIRONMENTS, "benchmark": BENCHMARKS}
USUAL_RANGE = (0.0, 1.0)
NUMBER_VERIFIER = "answer_match"
"""The default verifier of a benchmark."""


@dataclass(frozen=True)
class Wanted:
    """The environment or benchmark to create."""

    kind: Kind
    name: str
    profile: Profile = "custom-gym-verifier"
    verifier: str | None = None
    """The resources server to reuse, or one of its configs as `name/flavor`."""
    reward_range: tuple[float, float] | None = None
    higher_is_better: bool = True

    @property
    def place(self) -> str:
        """The folder, relative to the working folder."""
        return f"{FOLDER_OF[self.kind]}/{self.name}"

    @property
    def server(self) -> str:
        """The folder of the server that grades."""
        if self.verifier is not None:
            return f"resources_servers/{self.verifier.partition('/')[0]}"
        return f"resources_servers/{NUMBER_VERIFIER if self.kind == 'benchmark' else self.name}"

    @property
    def declared_range(self) -> tuple[float, float] | None:
        """The range of the rewards; None if it is unknown, because the server is reused and no range was chosen."""
        return self.reward_range or (None if self.verifier else USUAL_RANGE)

    @property
    def origin(self) -> str:
        """A short description of the tasks' source and the server that grades them."""
        return f"{'Questions' if self.kind == 'benchmark' else 'Tasks'} of our own, graded by {self.server}"
