"""The reports by which the part of a run on one machine joins the run's head server on another."""

from __future__ import annotations

from pydantic import BaseModel, Field

from nemo_gym.config.process import ServerInstance

MEMBERS_PATH = "/members"
HEARTBEAT_S = 2.0
"""Seconds between two reports."""
LOST_AFTER_S = 10.0
"""Seconds without a report after which a part counts as lost."""
RUN_HAS_ENDED = 410
"""The status of a report to the head server of another run."""
SENT_AT_HEADER = "x-nemo-gym-sent-at"
"""Header with the sender's time in seconds since the epoch, because the clocks of machines differ."""


class PartReport(BaseModel):
    """The servers that one machine has."""

    run_id: str
    """The run that they have joined."""
    machine: str
    instances: list[ServerInstance] = Field(min_length=1)
    """With the addresses by which other machines reach them."""
