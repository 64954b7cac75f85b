"""Calls that each tool rejects."""

from nemo_gym import ToolError
from resources_servers.workplace_assistant.effects import effects_on
from resources_servers.workplace_assistant.toolkits import TOOLS

SEND = {"recipient": "ann.lee@firm.com", "subject": "S", "body": "B"}
EVENT = {"event_name": "talk", "participant_email": "a@b.c", "event_start": "2023-12-04 13:00:00", "duration": "45"}
TASK = {
    "task_name": "Test", "assigned_to_email": "bob.ray@firm.com", "list_name": "Backlog", "due_date": "2023-12-05",
    "board": "Design",
}  # fmt: skip
CUSTOMER = {"customer_name": "Flo Ox", "assigned_to_email": "ann.lee@firm.com", "status": "Lead"}
PLOT = {"time_min": "2023-11-01", "time_max": "2023-11-02", "value_to_plot": "total_visits", "plot_type": "bar"}


def test_rejected_call_is_explained_and_changes_nothing(database, untouched):
    cases = [
        ("company_directory_find_email_address", {}, "name must not be empty"),
        ("company_directory_find_email_address", {"name": "Zoe"}, "no entry for 'Zoe'"),
        ("email_get_email_information_by_id", {"email_id": "9", "field": "body"}, "no email_id '9'"),
        ("email_get_email_information_by_id", {"email_id": "00000001", "field": "text"}, "no field 'text'"),
        ("email_search_emails", {"date_min": "yesterday"}, "date_min 'yesterday' is not a date"),
        ("email_search_emails", {"date_max": "2023-02-30"}, "date_max '2023-02-30' is not a date"),
        ("email_search_emails", {"page": "0"}, "page '0' is not a number"),
        ("email_search_emails", {"page": "-1"}, "page '-1' is not a number"),
        ("email_search_emails", {"page_size": "five"}, "page_size 'five' is not a number"),
        ("email_search_emails", {"page_size": "9" * 5000}, "page_size"),
        ("email_search_emails", {"query": "a " * 501}, "longer than 1000"),
        ("email_send_email", {**SEND, "recipient": ""}, "recipient must not be empty"),
        ("email_send_email", {**SEND, "recipient": "ann"}, "'ann' is not an email address"),
        ("email_send_email", {**SEND, "subject": " "}, "subject must not be empty"),
        ("email_send_email", {**SEND, "body": ""}, "body must not be empty"),
        ("email_delete_email", {"email_id": "00000004"}, "no email_id '00000004'"),
        ("email_forward_email", {"email_id": "00000004", "recipient": "ann.lee@firm.com"}, "no email_id"),
        ("email_forward_email", {"email_id": "00000001", "recipient": "ann"}, "not an email address"),
        ("email_reply_email", {"email_id": "00000004", "body": "B"}, "no email_id"),
        ("email_reply_email", {"email_id": "00000001", "body": ""}, "body must not be empty"),
        ("calendar_get_event_information_by_id", {"event_id": "1", "field": "duration"}, "no event_id '1'"),
        ("calendar_get_event_information_by_id", {"event_id": "00000004", "field": "x"}, "fields are event_id, "),
        ("calendar_search_events", {"time_min": "noon"}, "time_min 'noon' is not a date"),
        ("calendar_search_events", {"time_max": "noon"}, "time_max 'noon' is not a date"),
        ("calendar_create_event", {**EVENT, "event_name": ""}, "event_name must not be empty"),
        ("calendar_create_event", {**EVENT, "duration": "", "event_start": ""}, "event_start, duration must not be"),
        ("calendar_delete_event", {"event_id": "4"}, "no event_id '4'"),
        ("calendar_update_event", {"event_id": "4", "field": "duration", "new_value": "1"}, "no event_id"),
        ("calendar_update_event", {"event_id": "00000004", "field": "event_id", "new_value": "1"}, "no field"),
        ("calendar_update_event", {"event_id": "00000004", "field": "duration", "new_value": ""}, "new_value must"),
        ("analytics_get_visitor_information_by_id", {"visitor_id": "1"}, "no visitor_id '1'"),
        ("analytics_create_plot", {**PLOT, "time_min": ""}, "time_min must not be empty"),
        ("analytics_create_plot", {**PLOT, "value_to_plot": "money"}, "'money' is not valid; choose one of total_"),
        ("analytics_create_plot", {**PLOT, "plot_type": "pie"}, "plot_type 'pie' is not valid"),
        ("analytics_total_visits_count", {"time_min": "May"}, "time_min 'May' is not a date"),
        ("analytics_engaged_users_count", {"time_max": "May"}, "time_max 'May' is not a date"),
        ("analytics_traffic_source_count", {"traffic_source": "tv"}, "choose one of direct, social media"),
        ("analytics_get_average_session_duration", {"time_max": "May"}, "not a date"),
        ("project_management_get_task_information_by_id", {"task_id": "9", "field": "board"}, "no task_id '9'"),
        ("project_management_get_task_information_by_id", {"task_id": "00000001", "field": "b"}, "no field 'b'"),
        ("project_management_search_tasks", {}, "at least one of task_name, "),
        ("project_management_create_task", {**TASK, "task_name": ""}, "task_name must not be empty"),
        ("project_management_create_task", {**TASK, "assigned_to_email": "anna.may@firm.com"},
         "choose one of ann.lee@firm.com, bob.ray@firm.com"),
        ("project_management_create_task", {**TASK, "list_name": "Done"}, "choose one of Backlog, "),
        ("project_management_create_task", {**TASK, "list_name": "In review"}, "choose one of Backlog, "),
        ("project_management_create_task", {**TASK, "board": "Front End"}, "choose one of Back end, Front end, "),
        ("project_management_create_task", {**TASK, "board": "Design "}, "choose one of Back end, Front end, "),
        ("project_management_update_task",
         {"task_id": "00000001", "field": "board", "new_value": "design"}, "choose one of Back end, Front end, "),
        ("project_management_update_task",
         {"task_id": "00000001", "field": "list_name", "new_value": "COMPLETED"}, "choose one of Backlog, "),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000010", "field": "status", "new_value": "won"}, "choose one of Lead, "),
        ("customer_relationship_manager_add_customer", {**CUSTOMER, "status": "lead"}, "choose one of Lead, "),
        ("customer_relationship_manager_add_customer", {**CUSTOMER, "product_interest": "software"}, "of Software, "),
        ("analytics_create_plot", {**PLOT, "plot_type": "Bar"}, "choose one of bar, "),
        ("analytics_create_plot", {**PLOT, "value_to_plot": "Total_visits"}, "choose one of total_visits, "),
        ("analytics_traffic_source_count", {"traffic_source": "Direct"}, "choose one of direct, "),
        ("project_management_create_task", {**TASK, "board": "Back"}, "choose one of Back end, "),
        ("project_management_delete_task", {"task_id": "9"}, "no task_id '9'"),
        ("project_management_update_task", {"task_id": "9", "field": "board", "new_value": "Design"}, "no task_id"),
        ("project_management_update_task", {"task_id": "00000001", "field": "task_id", "new_value": "7"}, "no field"),
        ("project_management_update_task", {"task_id": "00000001", "field": "board", "new_value": ""}, "new_value"),
        ("project_management_update_task", {"task_id": "00000001", "field": "board", "new_value": "x"}, "board 'x'"),
        ("project_management_update_task", {"task_id": "00000001", "field": "list_name", "new_value": "x"},
         "list_name 'x'"),
        ("project_management_update_task", {"task_id": "00000001", "field": "assigned_to_email", "new_value": "x"},
         "assigned_to_email 'x'"),
        ("customer_relationship_manager_search_customers", {}, "at least one of customer_name, "),
        ("customer_relationship_manager_search_customers", {"page": "2"}, "at least one of customer_name, "),
        ("customer_relationship_manager_search_customers", {"follow_up_by_min": "soon"}, "follow_up_by_min 'soon'"),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "1", "field": "status", "new_value": "Won"}, "no customer_id '1'"),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000010", "field": "customer_id", "new_value": "1"}, "no field 'customer_id'"),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000010", "field": "status", "new_value": ""}, "new_value must not be empty"),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000010", "field": "status", "new_value": "Rich"}, "choose one of Lead, "),
        ("customer_relationship_manager_update_customer",
         {"customer_id": "00000010", "field": "product_interest", "new_value": "Tea"}, "choose one of Software, "),
        ("customer_relationship_manager_add_customer", {**CUSTOMER, "customer_name": ""}, "customer_name must not"),
        ("customer_relationship_manager_add_customer", {**CUSTOMER, "status": "Rich"}, "choose one of Lead, "),
        ("customer_relationship_manager_add_customer", {**CUSTOMER, "product_interest": "Tea"}, "of Software, "),
        ("customer_relationship_manager_delete_customer", {"customer_id": "1"}, "no customer_id '1'"),
    ]  # fmt: skip
    wrong = []
    for tool, arguments, problem in cases:
        try:
            wrong.append((tool, arguments, TOOLS[tool](database, **arguments)))
        except ToolError as error:
            if problem not in str(error) or len(str(error)) >= 500:
                wrong.append((tool, arguments, problem, str(error)))
        if effects_on(database) != effects_on(untouched):
            wrong.append((tool, arguments, "it changed the database"))
    assert wrong == []
