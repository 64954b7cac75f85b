"""The lines of the scripted model: for each example task, turns that solve it and turns with a mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym.jsonl import JsonObject, read_rows

SERVERS = Path(__file__).parents[3] / "resources_servers"
ENVIRONMENTS = ("workplace_assistant", "math_with_judge", "rubric_judge", "visual_reasoning")


class Turn(NamedTuple):
    """One turn of the model: its reasoning, then a tool call or a text."""

    reasoning: str
    call: str = ""
    arguments: JsonObject | None = None
    text: str = ""


class Task(NamedTuple):
    """The script of one task."""

    question: str
    """The user message, by which a request is recognized."""
    expected: str
    difficulty: float
    solution: tuple[Turn, ...]
    mistake: tuple[Turn, ...]


def read_tasks() -> Iterator[Task]:
    """Yield the example tasks of the environments."""
    for make, server in zip((_errand, _maths, _reply, _picture), ENVIRONMENTS, strict=True):
        for number, row in enumerate(read_rows(SERVERS / server / "data" / "example.jsonl")):
            yield make(number, row)


def text_of(content: str | list[JsonObject]) -> str:
    """Return the text of a message."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _question(row: JsonObject) -> str:
    return text_of(row["responses_create_params"]["input"][-1]["content"])


ERRANDS: tuple[tuple[tuple[Turn, ...], str, float], ...] = (
    (
        (
            Turn("The condition comes first: count the visits from social media on that day.",
                 "analytics_traffic_source_count",
                 {"time_min": "2023-11-27", "time_max": "2023-11-27", "traffic_source": "social media"}),
        ),
        "There were more than 4 visits from social media on November 27, so I drew the **line plot** for November "
        "20 to 27.",
        0.5,
    ),
    (
        (
            Turn("I need the id and the length of the quarter kick-off.",
                 "calendar_search_events", {"query": "quarter kick-off"}),
            Turn("Next, what else is in the calendar on Friday, December 8? The first gap must be long enough.",
                 "calendar_search_events",
                 {"time_min": "2023-12-08 00:00:00", "time_max": "2023-12-08 23:59:59", "page_size": "10"}),
        ),
        "The quarter kick-off is now on **Friday, December 8**.",
        0.75,
    ),
    (
        (
            Turn("I look up the customer, because I need her id and the colleague who looks after her.",
                 "customer_relationship_manager_search_customers", {"customer_name": "Ada Jarvis"}),
        ),
        "Ada Jarvis is deleted. **Noor Abbas** is a new lead with the same colleague, to follow up by December 7.",
        0.35,
    ),
    (
        (
            Turn("Which tasks of the Front end board are in progress?",
                 "project_management_search_tasks", {"board": "Front end", "list_name": "In progress"}),
        ),
        "Both overdue tasks are due on **Monday, December 4**, and Lars and Céline have an email about it.",
        0.85,
    ),
    (
        (
            Turn("First I search for Rosa's emails. The latest one is to be answered and forwarded, and the one about "
                 "the budget check is to be deleted.", "email_search_emails", {"query": "rosa"}),
            Turn("To forward it, I need Stefan's address.",
                 "company_directory_find_email_address", {"name": "Stefan"}),
        ),
        "Done:\n\n- Rosa's latest email is **answered** and **forwarded** to Stefan.\n- Her email about the budget "
        "check is **deleted**.",
        0.55,
    ),
)  # fmt: skip
"""For each errand: the look-ups before the calls of the row's solution, the report, the difficulty."""


def _errand(number: int, row: JsonObject) -> Task:
    lookups, report, difficulty = ERRANDS[number]
    calls = [
        Turn("" if at else "Now I know what I need.", each["name"], json.loads(each["arguments"]))
        for at, each in enumerate(row["ground_truth"])
    ]
    done = Turn("", text=report)
    # One call alone is made with another day or the like; of several, the last one is forgotten.
    wrong = calls[:-1] or [calls[0]._replace(arguments={**(calls[0].arguments or {}), **_slip(calls[0])})]
    return Task(_question(row), "", difficulty, (*lookups, *calls, done), (*lookups, *wrong, done))


def _slip(turn: Turn) -> JsonObject:
    arguments = turn.arguments or {}
    return {"new_value": "2023-12-08 09:00:00"} if "new_value" in arguments else {"time_min": "2023-11-27"}


MATHS = (
    ("The tram has $12 \\cdot 3 = 36$ seats. Of these, 29 are taken:\n\n$$36 - 29 = 7$$",
     "The tram has $12 + 3 = 15$ benches' worth of seats, and 29 are taken:\n\n$$29 - 15 = 14$$", "14"),
    ("The common denominator is $12$:\n\n"
     "$$\\frac{3}{4} - \\frac{1}{6} = \\frac{9}{12} - \\frac{2}{12} = \\frac{7}{12}$$",
     "Subtract the numerators and the denominators:\n\n$$\\frac{3 - 1}{4 - 6} = -1$$", "-1"),
    ("Multiply each term by each term:\n\n$$(2x - 1)(x + 3) = 2x^2 + 6x - x - 3 = 2x^2 + 5x - 3$$",
     "Multiply each term by each term:\n\n$$(2x - 1)(x + 3) = 2x^2 + 6x + x - 3 = 2x^2 + 7x - 3$$", "2x^2 + 7x - 3"),
    ("Every eighth number is divisible by $8$, and $1000 = 8 \\cdot 125$:\n\n$$\\frac{125}{1000} = \\frac{1}{8}$$",
     "There are $\\lfloor 1000 / 8 \\rfloor + 1 = 126$ such numbers:\n\n$$\\frac{126}{1000} = \\frac{63}{500}$$",
     "\\frac{63}{500}"),
    ("The coat costs $80 - 68 = 12$ dollars less:\n\n$$\\frac{12}{80} = 0.15 = 15\\,\\%$$",
     "The coat costs $80 - 68 = 12$ dollars less:\n\n$$\\frac{12}{68} \\approx 0.176 = 17.6\\,\\%$$", "17.6\\%"),
)  # fmt: skip
"""For each question: right steps, wrong steps, the wrong answer."""


def _maths(number: int, row: JsonObject) -> Task:
    right, wrong, answer = MATHS[number]
    reasoning = "Let me set up the calculation and check it before I answer."
    solution = Turn(reasoning, text=f"{right}\n\nThe answer is $\\boxed{{{row['expected_answer']}}}$.")
    mistake = Turn(reasoning, text=f"{wrong}\n\nThe answer is $\\boxed{{{answer}}}$.")
    return Task(_question(row), row["expected_answer"], 0.2 + number / 8, (solution,), (mistake,))


REPLIES = (
    "Dear Edgars Vītols,\nthank you for your message. We are sorry about order 69618, and give you a voucher "
    "for 20 dollars.\nKind regards\nYour support team",
    "Hello,\nthank you for your message. We cancel the second charge for order 50109, which takes 5 days.\n"
    "Kind regards\nYour support team",
    "Dear Leyla Mammadova,\nyour order is on its way. Please be patient.\nKind regards\nYour support team",
    "Dear Reza Karimi,\nyou should have measured the tea pot of order 34205 first. A return is not possible.\n"
    "Your support team",
    "Hello,\nthank you for your message. We are sorry, and look into it.\nKind regards\nYour support team",
)  # fmt: skip
"""For each message of a customer: a reply with mistakes."""


def _reply(number: int, row: JsonObject) -> Task:
    reasoning = "The customer needs to know what happens next. I keep it short and friendly."
    solution, mistake = (Turn(reasoning, text=text) for text in (row["expected_answer"], REPLIES[number]))
    return Task(_question(row), row["expected_answer"], 0.3 + number / 7, (solution,), (mistake,))


SIGHTS = ("6:43", "rice", "first", "150, 90", "2A3D3C")


def _picture(number: int, row: JsonObject) -> Task:
    looks = tuple[Turn, ...]()
    if "subset" in row and row["subset"] == "zoom":
        left, top, right, bottom = row["box"]
        part = {"x": left, "y": top, "w": right - left, "h": bottom - top}
        looks = (Turn("The print is too small to read. I enlarge the card.", "zoom", part),)
    right_answer, wrong_answer = (
        Turn("I describe what I see before I answer.", text=f"I looked at each part.\n\nAnswer: {answer}")
        for answer in (row["expected_answer"], SIGHTS[number])
    )
    return Task(
        _question(row), row["expected_answer"], 0.4 + number / 12, (*looks, right_answer), (*looks, wrong_answer)
    )
