"""A user's wishes about customers: to add, change, assign or delete them."""

from __future__ import annotations

from collections.abc import Callable

from nemo_gym import shared_rows
from resources_servers.multiple_intents.lookups import called, customer_called, customers_of
from resources_servers.multiple_intents.questions import customers_with_status, seller_of
from resources_servers.multiple_intents.wishes import Wish
from resources_servers.workplace_assistant.company import FIRMS
from resources_servers.workplace_assistant.database import Database, Row
from resources_servers.workplace_assistant.errands import Call, Draw
from resources_servers.workplace_assistant.toolkits.customer_relationship_manager import PRODUCTS, STATUSES

MOST_HANDED_OVER = 5
# Use only ASCII names, because the customers' email addresses contain them.
GIVEN_NAMES = [row["given_name"] for row in shared_rows("names.jsonl") if row["given_name"].isascii()]
SURNAMES = [row["surname"] for row in shared_rows("names.jsonl") if row["surname"].isascii()]


def a_customer(draw: Draw) -> Row:
    return draw.one(list(draw.company.customers.rows.values()))


def set_status(draw: Draw) -> Wish | None:
    customer, status = a_customer(draw), draw.one(STATUSES)
    if customer["status"] == status:
        return None
    name, seller = customer["customer_name"], customer["assigned_to_email"]
    return Wish(
        "change",
        f"set the status of our customer {name} to '{status}'",
        f"our customer {name}",
        lambda database: _customer_changed(customer_called(database, name), "status", status),
        (customers_with_status(seller, status), customers_with_status(seller, customer["status"])),
    )


def assign_customer(draw: Draw, customer: Row) -> Wish | None:
    taker = draw.seller()
    if customer["assigned_to_email"] == taker:
        return None
    name, status = customer["customer_name"], customer["status"]
    return Wish(
        "change",
        f"assign our customer {name} to {called(taker)}",
        f"our customer {name}",
        lambda database: _customer_changed(customer_called(database, name), "assigned_to_email", taker),
        (customers_with_status(taker, status), seller_of(name)),
    )


def hand_over_customers(draw: Draw) -> Wish | None:
    """Return a wish to assign another seller to all of a seller's customers with a certain status."""
    giver, taker, status = draw.seller(), draw.seller(), draw.one(STATUSES)
    if giver == taker or len(customers_of(Database(draw.company), giver, status)) > MOST_HANDED_OVER:
        return None
    return Wish(
        "change",
        f"assign all of {called(giver)}'s customers with the status '{status}' to {called(taker)}",
        f"{called(giver)}'s customers with the status '{status}'",
        lambda database: [
            call
            for customer in customers_of(database, giver, status)
            for call in _customer_changed(customer, "assigned_to_email", taker)
        ],
        (customers_with_status(taker, status),),
    )


def add_customer(draw: Draw) -> Wish | None:
    name, seller, status = f"{draw.one(GIVEN_NAMES)} {draw.one(SURNAMES)}", draw.seller(), draw.one(STATUSES[:3])
    product, email = draw.one(PRODUCTS), f"{name.lower().replace(' ', '.')}@{draw.one(FIRMS)}.example"
    if any(row["customer_name"] == name for row in draw.company.customers.rows.values()):
        return None
    arguments = {
        "customer_name": name,
        "assigned_to_email": seller,
        "status": status,
        "customer_email": email,
        "product_interest": product,
    }
    return Wish(
        "add",
        f"add the customer {name} ({email}) with the status '{status}', interested in {product.lower()}, and assign "
        f"them to {called(seller)}",
        f"the new customer {name}",
        lambda _: [Call("customer_relationship_manager_add_customer", arguments)],
        (customers_with_status(seller, status),),
    )


def drop_customer(draw: Draw) -> Wish:
    customer = a_customer(draw)
    name = customer["customer_name"]

    def calls(database: Database) -> list[Call]:
        found = customer_called(database, name)
        if found is None:
            return []
        return [Call("customer_relationship_manager_delete_customer", {"customer_id": found["customer_id"]})]

    return Wish(
        "cancel",
        f"delete our customer {name}",
        f"our customer {name}",
        calls,
        (customers_with_status(customer["assigned_to_email"], customer["status"]),),
        can_be_undone=False,
    )


CUSTOMER_WISHES: tuple[Callable[[Draw], Wish | None], ...] = (
    set_status, lambda draw: assign_customer(draw, a_customer(draw)), hand_over_customers, add_customer, drop_customer,
)  # fmt: skip


def _customer_changed(customer: Row | None, column: str, value: str) -> list[Call]:
    if customer is None or customer[column] == value:
        return []
    arguments = {"customer_id": customer["customer_id"], "field": column, "new_value": value}
    return [Call("customer_relationship_manager_update_customer", arguments)]
