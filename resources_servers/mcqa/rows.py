"""Build the row of a multiple-choice question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_uppercase

from nemo_gym import DataError
from nemo_gym.jsonl import JsonObject
from resources_servers.mcqa.grading import GradingMode


def lettered(texts: Iterable[str]) -> dict[str, str]:
    """Map the letters A, B, C, … to the option texts."""
    return {chr(ord("A") + place): text for place, text in enumerate(texts)}


def choice_row(
    question: str,
    options: Mapping[str, str],
    expected_answer: str,
    *,
    where: str,
    grading_mode: GradingMode,
    subset: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> JsonObject:
    """Return a row without its prompt.

    The prompt template inserts `{question}`, and `{options_text}` with one line per option.

    Raise `DataError` if the expected answer is not the letter of an option, or if there are fewer than two options or
    more options than letters. The message begins with `where`.
    """
    if len(options) < 2 or not ascii_uppercase.startswith("".join(options)):
        raise DataError(
            f"{where}: options: the letters are '{''.join(options)}', but must be at least two and run from A without "
            "a gap, such as ABC."
        )
    if expected_answer not in options:
        raise DataError(f"{where}: the answer '{expected_answer}' is not one of the options {', '.join(options)}.")
    texts = {letter: text.strip() for letter, text in options.items()}
    return {
        "question": question.strip(),
        "options_text": "\n".join(f"{letter}: {text}" for letter, text in texts.items()),
        "options": [{letter: text} for letter, text in texts.items()],
        "expected_answer": expected_answer,
        "grading_mode": grading_mode,
        **({"subset": subset} if subset else {}),
        **({"metadata": dict(metadata)} if metadata else {}),
    }
