"""The results and changes of each tool."""

import pytest

from resources_servers.workplace_assistant.database import VISIT_COLUMNS, Database
from resources_servers.workplace_assistant.effects import effects_on
from resources_servers.workplace_assistant.tests.small_company import VISITS
from resources_servers.workplace_assistant.toolkits import TOOLS


def ids(found):
    """Return the last digits of the ids in the order found."""
    return [next(iter(row.values()))[-2:].lstrip("0") or "0" for row in found]


def test_read_tool_answers_and_changes_nothing(database, untouched):
    cases = [
        ("company_directory_find_email_address", {"name": "Bob"}, ["bob.ray@firm.com"]),
        ("company_directory_find_email_address", {"name": "ann"}, ["ann.lee@firm.com", "anna.may@firm.com"]),
        ("company_directory_find_email_address", {"name": "Ann Lee"}, ["ann.lee@firm.com"]),
        ("email_get_email_information_by_id", {"email_id": "00000002", "field": "body"}, {"body": "Noodles?"}),
        ("email_get_email_information_by_id", {"email_id": "00000003", "field": "inbox/outbox"},
         {"inbox/outbox": "outbox"}),
        ("calendar_get_event_information_by_id", {"event_id": "00000004", "field": "duration"}, {"duration": "60"}),
        ("project_management_get_task_information_by_id", {"task_id": "00000001", "field": "board"},
         {"board": "Front end"}),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "0008"},
         [dict(zip(VISIT_COLUMNS, VISITS[1], strict=True))]),
        ("analytics_total_visits_count", {}, {"2023-11-01": 2, "2023-11-02": 1}),
        ("analytics_total_visits_count", {"time_min": "2023-11-02"}, {"2023-11-02": 1}),
        ("analytics_total_visits_count", {"time_max": "2023-11-01 23:00:00"}, {"2023-11-01": 2}),
        ("analytics_total_visits_count", {"time_min": "2024-01-01"}, {}),
        ("analytics_engaged_users_count", {}, {"2023-11-01": 1, "2023-11-02": 0}),
        ("analytics_engaged_users_count", {"time_max": "2023-11-01"}, {"2023-11-01": 1}),
        ("analytics_traffic_source_count", {}, {"2023-11-01": 2, "2023-11-02": 1}),
        ("analytics_traffic_source_count", {"traffic_source": "social media"}, {"2023-11-01": 1, "2023-11-02": 0}),
        ("analytics_traffic_source_count", {"traffic_source": "direct", "time_min": "2023-11-02"}, {"2023-11-02": 1}),
        ("analytics_get_average_session_duration", {}, {"2023-11-01": 7.5, "2023-11-02": 8.0}),
        ("analytics_get_average_session_duration", {"time_min": "2023-11-02"}, {"2023-11-02": 8.0}),
    ]  # fmt: skip
    wrong = []
    for tool, arguments, answer in cases:
        found = TOOLS[tool](database, **arguments)
        if found != answer or effects_on(database) != effects_on(untouched):
            wrong.append((tool, arguments, answer, found))
    assert wrong == []


def test_search_returns_one_page(database):
    cases = [
        ("email_search_emails", "emails", {}, ["2", "7", "1", "3"]),
        ("email_search_emails", "emails", {"query": "MAY"}, ["1", "3"]),
        ("email_search_emails", "emails", {"query": "may budget"}, ["3"]),
        ("email_search_emails", "emails", {"query": "ann"}, ["7", "1", "3"]),
        ("email_search_emails", "emails", {"query": "nobody"}, []),
        ("email_search_emails", "emails", {"date_min": "2023-11-28"}, ["2", "7", "1"]),
        ("email_search_emails", "emails", {"date_max": "2023-11-28"}, ["1", "3"]),
        ("email_search_emails", "emails", {"date_min": "2023-11-28", "date_max": "2023-11-28 08:00:00"}, ["1"]),
        ("email_search_emails", "emails", {"page_size": "3", "page": "2"}, ["3"]),
        ("email_search_emails", "emails", {"page": "2"}, []),
        ("email_search_emails", "emails", {"page": "", "page_size": ""}, ["2", "7", "1", "3"]),
        ("calendar_search_events", "events", {}, ["4", "5", "9"]),
        ("calendar_search_events", "events", {"query": "Sync"}, ["5", "9"]),
        ("calendar_search_events", "events", {"query": "sync bob"}, ["9"]),
        ("calendar_search_events", "events", {"time_min": "2023-12-01"}, ["5", "9"]),
        ("calendar_search_events", "events", {"time_min": "2023-12-01 10:00:01"}, ["9"]),
        ("calendar_search_events", "events", {"time_max": "2023-12-01"}, ["4", "5"]),
        ("calendar_search_events", "events", {"time_max": "2023-12-01 00:00:00"}, ["4"]),
        ("calendar_search_events", "events", {"time_max": "2023-12-01T10:00Z"}, ["4", "5"]),
        ("calendar_search_events", "events", {"page_size": "1", "page": "3"}, ["9"]),
        ("customer_relationship_manager_search_customers", "customers", {"customer_name": "dow"}, ["10"]),
        ("customer_relationship_manager_search_customers", "customers", {"customer_email": "mill"}, ["10", "11"]),
        ("customer_relationship_manager_search_customers", "customers", {"product_interest": "training"}, ["11"]),
        ("customer_relationship_manager_search_customers", "customers", {"status": "Lead"}, ["10"]),
        ("customer_relationship_manager_search_customers", "customers", {"assigned_to_email": "bob"}, ["11"]),
        ("customer_relationship_manager_search_customers", "customers", {"last_contact_date_min": "2023-11-20"},
         ["11"]),
        ("customer_relationship_manager_search_customers", "customers", {"last_contact_date_max": "2023-11-19"},
         ["10"]),
        ("customer_relationship_manager_search_customers", "customers", {"follow_up_by_min": "2023-01-01"}, ["10"]),
        ("customer_relationship_manager_search_customers", "customers", {"follow_up_by_max": "2023-12-31"}, ["10"]),
        ("customer_relationship_manager_search_customers", "customers",
         {"customer_email": "mill", "page": "2", "page_size": "1"}, ["11"]),
    ]  # fmt: skip
    wrong = []
    for tool, kind, arguments, found in cases:
        actual = ids(TOOLS[tool](database, **arguments)[kind])
        if actual != found or effects_on(database):
            wrong.append((tool, arguments, found, actual))
    assert wrong == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"task_name": "fix"}, ["1", "2"]),
        ({"assigned_to_email": "ann"}, ["0"]),
        ({"list_name": "backlog"}, ["0"]),
        ({"due_date": "2023-12"}, ["0", "2"]),
        ({"board": "end"}, ["1", "2"]),
        ({"board": "end", "due_date": "2023-12-01"}, ["2"]),
        ({"board": "none"}, []),
    ],
)
def test_tasks_must_match_every_given_field(database, arguments, found):
    assert ids(TOOLS["project_management_search_tasks"](database, **arguments)) == found


def test_page_reports_the_total(database):
    found = TOOLS["email_search_emails"](database, query="", page="2", page_size="3")
    assert found["pagination"] == {"page": 2, "page_size": 3, "pages": 2, "total": 4}


def test_page_size_is_limited(database):
    assert TOOLS["email_search_emails"](database, page_size="100000")["pagination"]["page_size"] == 50


NOW = "2023-11-30 00:00:00"


@pytest.mark.parametrize(
    ("tool", "arguments", "name", "row_id", "row"),
    [
        ("email_send_email", {"recipient": "Bob.Ray@firm.com", "subject": "Hi", "body": "You?"},
         "emails", "00000008", ("outbox", "bob.ray@firm.com", "Hi", NOW, "You?")),
        ("email_forward_email", {"email_id": "00000002", "recipient": "ann.lee@firm.com"},
         "emails", "00000008", ("outbox", "ann.lee@firm.com", "FW: Lunch", NOW, "Noodles?")),
        ("email_reply_email", {"email_id": "00000002", "body": "Rice."},
         "emails", "00000008", ("outbox", "bob.ray@firm.com", "Lunch", NOW, "Rice.")),
        ("email_delete_email", {"email_id": "00000002"}, "emails", "00000002", None),
        ("calendar_create_event",
         {"event_name": "talk", "participant_email": "Ann.Lee@firm.com", "event_start": "2023-12-04 13:00:00",
          "duration": "45"},
         "events", "00000010", ("talk", "ann.lee@firm.com", "2023-12-04 13:00:00", "45")),
        ("calendar_update_event", {"event_id": "00000004", "field": "event_name", "new_value": "Review"},
         "events", "00000004", ("Review", "bob.ray@firm.com", "2023-11-30 15:00:00", "60")),
        ("calendar_update_event", {"event_id": "00000004", "field": "participant_email", "new_value": "ANN@firm.com"},
         "events", "00000004", ("retro", "ann@firm.com", "2023-11-30 15:00:00", "60")),
        ("calendar_delete_event", {"event_id": "00000004"}, "events", "00000004", None),
        ("project_management_create_task",
         {"task_name": "Test", "assigned_to_email": "BOB.ray@firm.com", "list_name": "In Review",
          "due_date": "2023-12-05", "board": "Back end"},
         "tasks", "00000003", ("Test", "bob.ray@firm.com", "In Review", "2023-12-05", "Back end")),
        ("project_management_update_task", {"task_id": "00000000", "field": "list_name", "new_value": "Completed"},
         "tasks", "00000000", ("Draw the logo", "ann.lee@firm.com", "Completed", "2023-12-01", "Design")),
        ("project_management_update_task",
         {"task_id": "00000000", "field": "assigned_to_email", "new_value": "bob.ray@firm.com"},
         "tasks", "00000000", ("Draw the logo", "bob.ray@firm.com", "Backlog", "2023-12-01", "Design")),
        ("project_management_update_task", {"task_id": "00000000", "field": "board", "new_value": "Front end"},
         "tasks", "00000000", ("Draw the logo", "ann.lee@firm.com", "Backlog", "2023-12-01", "Front end")),
        ("project_management_update_task", {"task_id": "00000000", "field": "task_name", "new_value": "Rest"},
         "tasks", "00000000", ("Rest", "ann.lee@firm.com", "Backlog", "2023-12-01", "Design")),
        ("project_management_delete_task", {"task_id": "00000002"}, "tasks", "00000002", None),
        ("customer_relationship_manager_add_customer",
         {"customer_name": "Flo Ox", "assigned_to_email": "Ann.Lee@firm.com", "status": "Lead"},
         "customers", "00000012", ("ann.lee@firm.com", "Flo Ox", "", "", "", "", "Lead", "", "")),
        ("customer_relationship_manager_add_customer",
         {"customer_name": "Flo Ox", "assigned_to_email": "ann.lee@firm.com", "status": "Won",
          "customer_email": "Flo@mill", "customer_phone": "1", "last_contact_date": "2023-11-02",
          "product_interest": "Services", "notes": "N", "follow_up_by": "2023-12-03"},
         "customers", "00000012",
         ("ann.lee@firm.com", "Flo Ox", "flo@mill", "1", "2023-11-02", "Services", "Won", "2023-12-03", "N")),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000011", "field": "status", "new_value": "Lost"}, "customers", "00000011",
         ("bob.ray@firm.com", "Di Poe", "di.poe@mill", "5", "2023-11-20", "Training", "Lost", "", "Called.")),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000011", "field": "product_interest", "new_value": "Hardware"}, "customers", "00000011",
         ("bob.ray@firm.com", "Di Poe", "di.poe@mill", "5", "2023-11-20", "Hardware", "Won", "", "Called.")),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000011", "field": "notes", "new_value": "Met."}, "customers", "00000011",
         ("bob.ray@firm.com", "Di Poe", "di.poe@mill", "5", "2023-11-20", "Training", "Won", "", "Met.")),
        ("customer_relationship_manager_delete_customer", {"customer_id": "00000010"}, "customers", "00000010", None),
    ],
)  # fmt: skip
def test_write_tool_changes_one_row_of_this_rollout(database, tool, arguments, name, row_id, row):  # noqa: PLR0917
    untouched = Database(database.company)
    TOOLS[tool](database, **arguments)
    now = getattr(database, name)
    found = now.get(row_id)
    assert (found if found is None else tuple(found.values())) == (row if row is None else (row_id, *row))
    others = {key: value for key, value in now.start.rows.items() if key != row_id}
    assert {next(iter(each.values())): each for each in now} == others | ({} if found is None else {row_id: found})
    assert effects_on(database) != effects_on(untouched)
    assert not effects_on(untouched)


def test_plot_returns_its_file_name(database, untouched):
    made = TOOLS["analytics_create_plot"](
        database, time_min="2023-11-01", time_max="2023-11-02", value_to_plot="total_visits", plot_type="bar"
    )
    assert database.plots == [made] == ["plots/2023-11-01_2023-11-02_total_visits_bar.png"]
    assert effects_on(database) != effects_on(untouched)


def test_new_row_can_be_found_changed_and_deleted(database, untouched):
    made = TOOLS["calendar_create_event"](
        database,
        event_name="talk",
        participant_email="ann.lee@firm.com",
        event_start="2023-11-30 09:00:00",
        duration="30",
    )
    assert ids(TOOLS["calendar_search_events"](database)["events"]) == ["10", "4", "5", "9"]
    TOOLS["calendar_update_event"](database, **made, field="duration", new_value="60")
    assert TOOLS["calendar_get_event_information_by_id"](database, **made, field="duration") == {"duration": "60"}
    TOOLS["calendar_delete_event"](database, **made)
    assert effects_on(database) == effects_on(untouched)
