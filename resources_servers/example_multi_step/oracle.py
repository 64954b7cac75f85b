"""A perfect attempt: look up the values of all synonyms and submit them."""

from typing import Any

from nemo_gym.testing import call


def solve(row: dict[str, Any]) -> list[Any]:
    """Look up each synonym, then submit all values in order."""
    return [
        *(call("get_synonym_value", synonym=synonym) for synonym in row["expected_synonyms"]),
        call("extract_synonym_values", synonym_values=row["expected_synonym_values"]),
        "All values are handed in.",
    ]
