"""A company with a few rows."""

from resources_servers.workplace_assistant.database import StartTable

EMAILS = [
    ("00000001", "inbox", "ann.lee@firm.com", "Plans for May", "2023-11-28 09:00:00", "Hi Sam,\n\nsee you in May."),
    ("00000002", "inbox", "bob.ray@firm.com", "Lunch", "2023-11-29 12:00:00", "Noodles?"),
    ("00000003", "outbox", "ann.lee@firm.com", "Budget", "2023-11-27 23:59:59", "It is May's."),
    ("00000007", "inbox", "ann.lee@firm.com", "Budget", "2023-11-29 08:00:00", "Done."),
]
EVENTS = [
    ("00000005", "sync up", "ann.lee@firm.com", "2023-12-01 10:00:00", "30"),
    ("00000004", "retro", "bob.ray@firm.com", "2023-11-30 15:00:00", "60"),
    ("00000009", "sync up", "bob.ray@firm.com", "2023-12-02 09:00:00", "90"),
]
TASKS = [
    ("00000000", "Draw the logo", "ann.lee@firm.com", "Backlog", "2023-12-01", "Design"),
    ("00000001", "Fix the form", "bob.ray@firm.com", "In Progress", "2023-11-29", "Front end"),
    ("00000002", "Fix the index", "bob.ray@firm.com", "Completed", "2023-12-01", "Back end"),
]
CUSTOMERS = [
    ("00000010", "ann.lee@firm.com", "Cy Dow", "cy.dow@mill", "", "2023-11-01", "Software", "Lead", "2023-12-01", ""),
    ("00000011", "bob.ray@firm.com", "Di Poe", "di.poe@mill", "5", "2023-11-20", "Training", "Won", "", "Called."),
]
VISITS = [
    ("2023-11-01", "0007", "3", "10", "direct", "True"),
    ("2023-11-01", "0008", "1", "5", "social media", "False"),
    ("2023-11-02", "0007", "2", "8", "direct", "False"),
]


def table(columns, rows):
    return StartTable.of(columns, (dict(zip(columns, row, strict=True)) for row in rows))
