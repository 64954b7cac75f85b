"""Databases of two rollouts in a small company."""

import pytest

from resources_servers.workplace_assistant.database import (
    CUSTOMER_COLUMNS,
    EMAIL_COLUMNS,
    EVENT_COLUMNS,
    TASK_COLUMNS,
    VISIT_COLUMNS,
    Company,
    Database,
)
from resources_servers.workplace_assistant.tests.small_company import CUSTOMERS, EMAILS, EVENTS, TASKS, VISITS, table


@pytest.fixture
def database():
    return Database(
        Company(
            emails=table(EMAIL_COLUMNS, EMAILS),
            events=table(EVENT_COLUMNS, EVENTS),
            tasks=table(TASK_COLUMNS, TASKS),
            customers=table(CUSTOMER_COLUMNS, CUSTOMERS),
            visits=tuple(dict(zip(VISIT_COLUMNS, visit, strict=True)) for visit in VISITS),
            addresses=("ann.lee@firm.com", "bob.ray@firm.com", "anna.may@firm.com"),
        )
    )


@pytest.fixture
def untouched(database):
    """The unchanged database of another rollout in the same company."""
    return Database(database.company)
