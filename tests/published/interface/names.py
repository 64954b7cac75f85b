"""Every name that published folders import, in the order of appendix A."""

from __future__ import annotations

from tests.published.interface import names_of_runs, names_of_schemas, names_of_servers

ROWS = sorted([*names_of_schemas.ROWS, *names_of_servers.ROWS, *names_of_runs.ROWS])
