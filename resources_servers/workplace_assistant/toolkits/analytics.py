"""Count and plot the visits to the company's web site."""

from __future__ import annotations

from collections import Counter

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import Database, Row
from resources_servers.workplace_assistant.toolkits.arguments import Text, check_given, day_of, one_of

PLOTTED_VALUES = (
    "total_visits", "session_duration_seconds", "user_engaged", "visits_direct", "visits_referral",
    "visits_search_engine", "visits_social_media",
)  # fmt: skip
PLOT_TYPES = ("bar", "line", "scatter", "histogram")


def get_visitor_information_by_id(database: Database, *, visitor_id: Text) -> list[Row]:
    """Read all visits of a visitor."""
    found = [visit for visit in database.company.visits if visit["visitor_id"] == visitor_id]
    if not found:
        raise ToolError(f"There is no visitor_id {visitor_id[:40]!r}.")
    return found


def create_plot(database: Database, *, time_min: Text, time_max: Text, value_to_plot: Text, plot_type: Text) -> str:
    """Plot a value over the days from time_min to time_max (YYYY-MM-DD), and return the plot's file.

    value_to_plot is total_visits, session_duration_seconds, user_engaged, visits_direct, visits_referral,
    visits_search_engine or visits_social_media. plot_type is bar, line, scatter or histogram.
    """
    check_given(time_min=time_min, time_max=time_max)
    value = one_of("value_to_plot", value_to_plot, PLOTTED_VALUES)
    kind = one_of("plot_type", plot_type, PLOT_TYPES)
    database.plots.append(f"plots/{time_min}_{time_max}_{value}_{kind}.png")
    return database.plots[-1]


def total_visits_count(database: Database, *, time_min: Text = "", time_max: Text = "") -> dict[str, int]:
    """Count the visits of each day from time_min to time_max (YYYY-MM-DD)."""
    visits = _visits(database, time_min, time_max)
    return _count_of(visits, visits)


def engaged_users_count(database: Database, *, time_min: Text = "", time_max: Text = "") -> dict[str, int]:
    """Count the visits of engaged users of each day from time_min to time_max (YYYY-MM-DD)."""
    visits = _visits(database, time_min, time_max)
    return _count_of(visits, [visit for visit in visits if visit["user_engaged"].lower() == "true"])


def traffic_source_count(
    database: Database, *, time_min: Text = "", time_max: Text = "", traffic_source: Text = ""
) -> dict[str, int]:
    """Count the visits from a traffic source of each day from time_min to time_max (YYYY-MM-DD).

    traffic_source is direct, referral, search engine or social media; without it all visits count.
    """
    visits = _visits(database, time_min, time_max)
    if not traffic_source:
        return _count_of(visits, visits)
    known = sorted({visit["traffic_source"] for visit in database.company.visits})
    source = one_of("traffic_source", traffic_source, known)
    return _count_of(visits, [visit for visit in visits if visit["traffic_source"] == source])


def get_average_session_duration(database: Database, *, time_min: Text = "", time_max: Text = "") -> dict[str, float]:
    """Average the length of the sessions, in seconds, of each day from time_min to time_max (YYYY-MM-DD)."""
    seconds: dict[str, list[int]] = {}
    for visit in _visits(database, time_min, time_max):
        seconds.setdefault(visit["date_of_visit"], []).append(int(visit["session_duration_seconds"]))
    return {day: sum(each) / len(each) for day, each in seconds.items()}


def _visits(database: Database, time_min: str, time_max: str) -> list[Row]:
    first = day_of("time_min", time_min) if time_min else ""
    last = day_of("time_max", time_max) if time_max else ""
    return [
        visit
        for visit in database.company.visits
        if (not first or visit["date_of_visit"] >= first) and (not last or visit["date_of_visit"] <= last)
    ]


def _count_of(visits: list[Row], counted: list[Row]) -> dict[str, int]:
    """Count the visits in `counted` on each day on which any of `visits` took place. A count may be 0."""
    counts = Counter(visit["date_of_visit"] for visit in counted)
    return {day: counts[day] for day in sorted({visit["date_of_visit"] for visit in visits})}


TOOLS = (
    get_visitor_information_by_id,
    create_plot,
    total_visits_count,
    engaged_users_count,
    traffic_source_count,
    get_average_session_duration,
)
