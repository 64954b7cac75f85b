"""A perfect attempt that looks up the values of all synonyms and submits them."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    return [
        *(call("get_synonym_value", synonym=synonym) for synonym in row["expected_synonyms"]),
        call("extract_synonym_values", synonym_values=row["expected_synonym_values"]),
        "All values are handed in.",
    ]
