"""The kinds of counterintuitive rules, each with several scenarios."""

from resources_servers.counterintuitive.drafts import Scenario
from resources_servers.counterintuitive.kinds import (
    calendars,
    corrections,
    formats,
    operators,
    priority,
    units,
    words,
)

KINDS: dict[str, tuple[Scenario, ...]] = {
    "redefined_operators": operators.SCENARIOS,
    "redefined_words": words.SCENARIOS,
    "inverted_formats": formats.SCENARIOS,
    "priority": priority.SCENARIOS,
    "corrections": corrections.SCENARIOS,
    "custom_calendar": calendars.SCENARIOS,
    "custom_units": units.SCENARIOS,
}
