"""Reports by which one machine's part of a run joins the run's head server on another machine."""

from __future__ import annotations

from pydantic import BaseModel, Field

from nemo_gym.config.process import ServerInstance

MEMBERS_PATH = "/members"
HEARTBEAT_S = 2.0
"""Seconds between the reports that a part of the run sends to the head server."""
LOST_AFTER_S = 10.0
"""Seconds without a report after which a part counts as lost."""
RUN_HAS_ENDED = 410
"""The response status for a report about a run that is not the head server's current run."""
SENT_AT_HEADER = "x-nemo-gym-sent-at"
"""Header with the sender's time in seconds since the epoch, to correct for a difference between the clocks."""


class PartReport(BaseModel):
    """The servers that one machine has started for a run."""

    run_id: str
    """The id of the run that the servers have joined."""
    machine: str
    instances: list[ServerInstance] = Field(min_length=1)
    """The servers, with the addresses by which other machines reach them."""
