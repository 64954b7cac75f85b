"""Statistics of a dataset's rows for its metrics file: the number of rows, and the spread of each numeric field."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from nemo_gym.jsonl import JsonObject


def dataset_statistics(rows: Iterable[JsonObject]) -> Mapping[str, object]:
    """Return the number of rows, the spread of each numeric field, and the number of unique values of string fields.

    The spread has the count, average, minimum, maximum and standard deviation.
    """
    count = 0
    numbers: dict[str, list[float]] = {name: [] for name in _counted({})}
    texts: dict[str, list[str]] = {}
    for row in rows:
        count += 1
        fields = {name: value for name, value in row.items() if name != "responses_create_params"}
        for name, value in {**_counted(row.get("responses_create_params") or {}), **fields}.items():
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                numbers.setdefault(name, []).append(value)
    return {
        "Number of examples": count,
        **{name: _spread(values) for name, values in numbers.items()},
        **{
            name: {"unique_count": len(set(values)), "total_count": len(values)}
            for name, values in texts.items()
            if name not in numbers
        },
    }


def write_metrics(path: Path, metrics: Mapping[str, object]) -> None:
    path.write_bytes(orjson.dumps(metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _counted(params: JsonObject) -> dict[str, float | None]:
    """Return statistics of a row's request, such as the number of tools. The value of a missing part is None."""
    return {
        "Number of tools": len(params["tools"]) if params.get("tools") else None,
        "Json-dumped number of words (proxy for token count)": len(json.dumps(params).split()),
        "Number of turns": _turns(params.get("input")),
        "Temperature": params.get("temperature"),
    }


def _turns(messages: object) -> int | None:
    """Return the number of user messages; 1 for an input that is a string, and None if there is no input."""
    if isinstance(messages, list):
        return sum(1 for message in messages if message.get("role") == "user")
    return None if messages is None else 1


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "Total # non-null values": len(values),
        "Average": _rounded(statistics.fmean(values) if values else 0.0),
        "Min": _rounded(min(values, default=0.0)),
        "Max": _rounded(max(values, default=0.0)),
        "Standard deviation": _rounded(statistics.stdev(values) if len(values) > 1 else 0.0),
    }


def _rounded(value: float) -> float:
    return round(value, 2 if abs(value) >= 1 else 3)
