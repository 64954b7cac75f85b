"""The time and the tool calls of a rollout, which an agent's reply reports in two headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from nemo_gym.schemas.rollout import TOOLS_HEADER

MOST_TOOLS = 30
LONGEST_NAME = 60
MOST_CHARACTERS = 4096
"""The length up to which a header is read. Those of nemo_gym's own agents have at most about 2,500 characters."""
OTHER_TOOLS, ESCAPED = "…", r"\u2026"
"""The name that sums the calls of all tools after the first ones, and how a header contains it."""
TIMING_HEADER = "server-timing"
_TIMING, _TOOLS = TIMING_HEADER.encode(), TOOLS_HEADER.encode()
_PHASE = re.compile(r"(?:^|, ?)(seed|model|tools|verify);dur=([0-9]{1,12}(?:\.[0-9]{1,6})?)(?=,|$)")
_TOOL = re.compile(r'"([!#-\[\]-~]{1,60}|…)": ?\[([0-9]{1,9}), ?([0-9]{1,9})\]')
_ODD = re.compile(r"[^!#-\[\]-~]")
"""Characters that JSON writes as several bytes. No model API allows them in a tool's name."""


class Spent:
    """The time of a rollout's calls to other servers, by phase, and its tool calls, by name.

    Calls that overlap count in full, so the phases may add up to more than the rollout's duration.
    """

    __slots__ = ("seconds", "tools")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """Seconds by phase: `seed`, `model`, `tools` and `verify`."""
        self.tools: dict[str, tuple[int, int]] = {}
        """The numbers of calls and of failed calls."""

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def add_tool(self, name: str, calls: int, failed: int) -> None:
        if name not in self.tools and name != OTHER_TOOLS:
            name = _ODD.sub("?", name[:LONGEST_NAME])
            if name not in self.tools and len(self.tools) >= MOST_TOOLS - 1:
                name = OTHER_TOOLS
        calls_before, failed_before = self.tools.get(name, (0, 0))
        self.tools[name] = (calls_before + calls, failed_before + failed)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add the times and the tool calls that a reply reports. Ignore invalid values."""
        if timing := headers.get(TIMING_HEADER):
            for phase, milliseconds in _PHASE.findall(timing[:MOST_CHARACTERS]):
                self.add(phase, float(milliseconds) / 1000)
        if counted := headers.get(TOOLS_HEADER):
            for tool, calls, failed in _TOOL.findall(counted[:MOST_CHARACTERS].replace(ESCAPED, OTHER_TOOLS)):
                self.add_tool(tool, int(calls), min(int(calls), int(failed)))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that report these times and tool calls."""
        timing = ", ".join([f"{phase};dur={1000 * seconds:.1f}" for phase, seconds in self.seconds.items()])
        headers = [(_TIMING, timing.encode())] if timing else []
        if self.tools:
            headers.append((_TOOLS, orjson.dumps(self.tools).replace(OTHER_TOOLS.encode(), ESCAPED.encode())))
        return headers
