"""Search, add, change and delete the company's customers."""

from __future__ import annotations

from typing import Any

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import CUSTOMER_COLUMNS, Database
from resources_servers.workplace_assistant.toolkits.arguments import (
    Text,
    check_field,
    check_given,
    contains,
    day_of,
    one_of,
    page_of,
    row_of,
)

STATUSES = ("Lead", "Qualified", "Proposal", "Won", "Lost")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")


def search_customers(
    database: Database,
    *,
    customer_name: Text = "",
    customer_email: Text = "",
    product_interest: Text = "",
    status: Text = "",
    assigned_to_email: Text = "",
    last_contact_date_min: Text = "",
    last_contact_date_max: Text = "",
    follow_up_by_min: Text = "",
    follow_up_by_max: Text = "",
    page: Text = "1",
    page_size: Text = "5",
) -> dict[str, Any]:
    """Search the customers whose fields contain the given values; at least one must be given.

    The dates (YYYY-MM-DD) are first and last days. Returns one page; page counts from 1.
    """
    texts = {
        "customer_name": customer_name,
        "customer_email": customer_email,
        "product_interest": product_interest,
        "status": status,
        "assigned_to_email": assigned_to_email,
    }
    days = {
        "last_contact_date_min": last_contact_date_min,
        "last_contact_date_max": last_contact_date_max,
        "follow_up_by_min": follow_up_by_min,
        "follow_up_by_max": follow_up_by_max,
    }
    wanted = {column: text for column, text in texts.items() if text}
    bounds = {name: day_of(name, day) for name, day in days.items() if day}
    if not wanted and not bounds:
        raise ToolError(f"Give at least one of {', '.join([*texts, *days])}.")
    found = [
        row
        for row in database.customers
        if contains(row, wanted) and all(_keeps(row[name[:-4]], name, day) for name, day in bounds.items())
    ]
    return page_of("customers", found, page, page_size)


def update_customer(database: Database, *, customer_id: Text, field: Text, new_value: Text) -> str:
    """Change one field of a customer: assigned_to_email, customer_name, customer_email, customer_phone,
    last_contact_date, product_interest, status, follow_up_by or notes. Dates are YYYY-MM-DD.

    status is Lead, Qualified, Proposal, Won or Lost. product_interest is Software, Hardware, Services, Consulting or
    Training.
    """
    row_of(database.customers, customer_id)
    check_field(field, CUSTOMER_COLUMNS[1:])
    check_given(new_value=new_value)
    database.customers.update(customer_id, field, _checked(field, new_value))
    return "The customer was updated."


def add_customer(
    database: Database,
    *,
    customer_name: Text,
    assigned_to_email: Text,
    status: Text,
    customer_email: Text = "",
    customer_phone: Text = "",
    last_contact_date: Text = "",
    product_interest: Text = "",
    notes: Text = "",
    follow_up_by: Text = "",
) -> dict[str, str]:
    """Add a customer. Dates are YYYY-MM-DD.

    status is Lead, Qualified, Proposal, Won or Lost. product_interest is Software, Hardware, Services, Consulting or
    Training.
    """
    check_given(customer_name=customer_name, assigned_to_email=assigned_to_email, status=status)
    given = {
        "assigned_to_email": assigned_to_email,
        "customer_name": customer_name,
        "customer_email": customer_email,
        "customer_phone": customer_phone,
        "last_contact_date": last_contact_date,
        "product_interest": product_interest,
        "status": status,
        "follow_up_by": follow_up_by,
        "notes": notes,
    }
    values = [_checked(column, given[column]) if given[column] else "" for column in CUSTOMER_COLUMNS[1:]]
    return {"customer_id": database.customers.add(*values)}


def delete_customer(database: Database, *, customer_id: Text) -> str:
    """Delete a customer."""
    row_of(database.customers, customer_id)
    database.customers.delete(customer_id)
    return "The customer was deleted."


def _keeps(value: str, bound: str, day: str) -> bool:
    """Return whether a date is within its bound. An empty date is outside of every bound."""
    return bool(value) and (value >= day if bound.endswith("_min") else value <= day)


def _checked(field: str, value: str) -> str:
    if field == "status":
        return one_of(field, value, STATUSES)
    if field == "product_interest":
        return one_of(field, value, PRODUCTS)
    return value.lower() if field in ("assigned_to_email", "customer_email") else value


TOOLS = (search_customers, update_customer, add_customer, delete_customer)
