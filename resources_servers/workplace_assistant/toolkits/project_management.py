"""Read, make, change and delete the tasks on the project boards."""

from __future__ import annotations

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import TASK_COLUMNS, Database, Row
from resources_servers.workplace_assistant.toolkits.arguments import (
    Text,
    check_field,
    check_given,
    contains,
    field_of,
    one_of,
    row_of,
)

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")


def get_task_information_by_id(database: Database, *, task_id: Text, field: Text) -> dict[str, str]:
    """Read one field of a task: task_id, task_name, assigned_to_email, list_name, due_date or board."""
    return field_of(database.tasks, task_id, field)


def search_tasks(
    database: Database,
    *,
    task_name: Text = "",
    assigned_to_email: Text = "",
    list_name: Text = "",
    due_date: Text = "",
    board: Text = "",
) -> list[Row]:
    """Search the tasks whose fields contain the given values; at least one must be given."""
    wanted = {
        "task_name": task_name,
        "assigned_to_email": assigned_to_email,
        "list_name": list_name,
        "due_date": due_date,
        "board": board,
    }
    given = {column: text for column, text in wanted.items() if text}
    if not given:
        raise ToolError(f"Give at least one of {', '.join(wanted)}.")
    return [row for row in database.tasks if contains(row, given)]


def create_task(
    database: Database, *, task_name: Text, assigned_to_email: Text, list_name: Text, due_date: Text, board: Text
) -> dict[str, str]:
    """Make a task. due_date is YYYY-MM-DD.

    list_name is Backlog, In Progress, In Review or Completed; board is Back end, Front end or Design.
    """
    check_given(task_name=task_name, due_date=due_date)
    task_id = database.tasks.add(
        task_name,
        _member(database, assigned_to_email),
        one_of("list_name", list_name, LISTS),
        due_date,
        one_of("board", board, BOARDS),
    )
    return {"task_id": task_id}


def delete_task(database: Database, *, task_id: Text) -> str:
    """Delete a task."""
    row_of(database.tasks, task_id)
    database.tasks.delete(task_id)
    return "The task was deleted."


def update_task(database: Database, *, task_id: Text, field: Text, new_value: Text) -> str:
    """Change one field of a task: task_name, assigned_to_email, list_name, due_date (YYYY-MM-DD) or board."""
    row_of(database.tasks, task_id)
    check_field(field, TASK_COLUMNS[1:])
    check_given(new_value=new_value)
    database.tasks.update(task_id, field, _checked(database, field, new_value))
    return "The task was updated."


def _checked(database: Database, field: str, value: str) -> str:
    if field == "list_name":
        return one_of(field, value, LISTS)
    if field == "board":
        return one_of(field, value, BOARDS)
    return _member(database, value) if field == "assigned_to_email" else value


def _member(database: Database, email: str) -> str:
    """Return the address if it belongs to a team member. Raises `ToolError` otherwise.

    Only colleagues with initial tasks are members, so that the order of the calls does not matter.
    """
    return one_of("assigned_to_email", email.lower(), sorted(database.company.tasks.values("assigned_to_email")))


TOOLS = (get_task_information_by_id, search_tasks, create_task, delete_task, update_task)
