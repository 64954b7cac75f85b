"""The tools of the workplace, by the names that the model uses."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from resources_servers.workplace_assistant.toolkits import (
    analytics,
    calendar,
    company_directory,
    customer_relationship_manager,
    email,
    project_management,
)

Function = Callable[..., Any]
"""A tool function, which takes the database and keyword arguments. It may raise `ToolError`."""


def _named(toolkit: ModuleType) -> dict[str, Function]:
    name = toolkit.__name__.rpartition(".")[2]
    return {f"{name}_{function.__name__}": function for function in toolkit.TOOLS}


TOOLS: dict[str, Function] = {
    **_named(company_directory),
    **_named(email),
    **_named(calendar),
    **_named(analytics),
    **_named(project_management),
    **_named(customer_relationship_manager),
}
