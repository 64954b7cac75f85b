"""Wishes for the project boards: add, move, assign, postpone and delete tasks."""

from __future__ import annotations

from collections.abc import Callable

from resources_servers.multiple_intents.lookups import called, named_task, said
from resources_servers.multiple_intents.questions import due_day_of, tasks_in_list
from resources_servers.multiple_intents.wishes import Wish
from resources_servers.workplace_assistant.company import PARTS, WORK
from resources_servers.workplace_assistant.database import Database, Row
from resources_servers.workplace_assistant.errands import Call, Draw
from resources_servers.workplace_assistant.toolkits.project_management import BOARDS, LISTS


def make_task(draw: Draw) -> Wish | None:
    member, board, due = draw.member(), draw.one(BOARDS), draw.working_day().isoformat()
    name, list_name = f"{draw.one(WORK[board])} {draw.one(PARTS)}", draw.one(LISTS[:2])
    if any((row["task_name"], row["assigned_to_email"]) == (name, member) for row in draw.company.tasks.rows.values()):
        return None
    return Wish(
        "add",
        f"add the task '{name}' for {called(member)} to the list '{list_name}' of the {board} board, due on "
        f"{said(due)}",
        f"the new task '{name}'",
        lambda _: [
            Call(
                "project_management_create_task",
                {
                    "task_name": name,
                    "assigned_to_email": member,
                    "list_name": list_name,
                    "due_date": due,
                    "board": board,
                },
            )
        ],
        (tasks_in_list(member, list_name),),
    )


def move_task(draw: Draw) -> Wish | None:
    task, list_name = _task(draw), draw.one(LISTS)
    if task["list_name"] == list_name:
        return None
    member = task["assigned_to_email"]
    return Wish(
        "change",
        f"move {_the(task)} to the list '{list_name}'",
        _the(task),
        lambda database: _task_changed(database, task, "list_name", list_name),
        (tasks_in_list(member, list_name), tasks_in_list(member, task["list_name"])),
    )


def hand_over_task(draw: Draw) -> Wish | None:
    task, taker = _task(draw), draw.member()
    if task["assigned_to_email"] == taker:
        return None
    return Wish(
        "change",
        f"assign {_the(task)} to {called(taker)}",
        _the(task),
        lambda database: _task_changed(database, task, "assigned_to_email", taker),
        (tasks_in_list(taker, task["list_name"]), tasks_in_list(task["assigned_to_email"], task["list_name"])),
    )


def postpone_task(draw: Draw) -> Wish | None:
    """Return a wish to move a task's due date to a random working day, or None if the day is already the due date."""
    task, due = _task(draw), draw.working_day().isoformat()
    if task["due_date"] == due:
        return None
    return Wish(
        "change",
        f"make {_the(task)} due on {said(due)}",
        _the(task),
        lambda database: _task_changed(database, task, "due_date", due),
        (due_day_of(task),),
    )


def drop_task(draw: Draw) -> Wish:
    task = _task(draw)

    def calls(database: Database) -> list[Call]:
        found = named_task(database, task["task_name"], task["assigned_to_email"])
        return [Call("project_management_delete_task", {"task_id": found["task_id"]})] if found else []

    return Wish(
        "cancel",
        f"delete {_the(task)}",
        _the(task),
        calls,
        (tasks_in_list(task["assigned_to_email"], task["list_name"]),),
        can_be_undone=False,
    )


TASK_WISHES: tuple[Callable[[Draw], Wish | None], ...] = (
    make_task, move_task, hand_over_task, postpone_task, drop_task,
)  # fmt: skip


def _task(draw: Draw) -> Row:
    return draw.one(list(draw.company.tasks.rows.values()))


def _the(task: Row) -> str:
    return f"{called(task['assigned_to_email'])}'s task '{task['task_name']}'"


def _task_changed(database: Database, task: Row, column: str, value: str) -> list[Call]:
    found = named_task(database, task["task_name"], task["assigned_to_email"])
    if found is None or found[column] == value:
        return []
    arguments = {"task_id": found["task_id"], "field": column, "new_value": value}
    return [Call("project_management_update_task", arguments)]
