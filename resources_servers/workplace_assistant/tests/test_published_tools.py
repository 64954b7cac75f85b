"""The tools have the published names and arguments."""

import inspect

from resources_servers.workplace_assistant.toolkits import TOOLS

PUBLISHED = """
company_directory_find_email_address(name?)
email_get_email_information_by_id(email_id, field)
email_search_emails(query?, date_min?, date_max?, page?, page_size?)
email_send_email(recipient, subject, body)
email_delete_email(email_id)
email_forward_email(email_id, recipient)
email_reply_email(email_id, body)
calendar_get_event_information_by_id(event_id, field)
calendar_search_events(query?, time_min?, time_max?, page?, page_size?)
calendar_create_event(event_name, participant_email, event_start, duration)
calendar_delete_event(event_id)
calendar_update_event(event_id, field, new_value)
analytics_get_visitor_information_by_id(visitor_id)
analytics_create_plot(time_min, time_max, value_to_plot, plot_type)
analytics_total_visits_count(time_min?, time_max?)
analytics_engaged_users_count(time_min?, time_max?)
analytics_traffic_source_count(time_min?, time_max?, traffic_source?)
analytics_get_average_session_duration(time_min?, time_max?)
project_management_get_task_information_by_id(task_id, field)
project_management_search_tasks(task_name?, assigned_to_email?, list_name?, due_date?, board?)
project_management_create_task(task_name, assigned_to_email, list_name, due_date, board)
project_management_delete_task(task_id)
project_management_update_task(task_id, field, new_value)
customer_relationship_manager_search_customers(customer_name?, customer_email?, product_interest?, status?, \
assigned_to_email?, last_contact_date_min?, last_contact_date_max?, follow_up_by_min?, follow_up_by_max?, page?, \
page_size?)
customer_relationship_manager_update_customer(customer_id, field, new_value)
customer_relationship_manager_add_customer(customer_name, assigned_to_email, status, customer_email?, \
customer_phone?, last_contact_date?, product_interest?, notes?, follow_up_by?)
customer_relationship_manager_delete_customer(customer_id)
"""


def test_tools_have_the_published_signatures():
    signatures = []
    for name, function in TOOLS.items():
        _, *parameters = inspect.signature(function).parameters.values()
        arguments = (f"{each.name}{'' if each.default is each.empty else '?'}" for each in parameters)
        signatures.append(f"{name}({', '.join(arguments)})")
    assert signatures == PUBLISHED.strip().splitlines()
    assert len(signatures) == 27
