"""A perfect answer to a multiple-choice question: the correct letter in the row's form."""

import re
from typing import Any

FORM_OF_MODE = {
    "strict_single_letter_boxed": r"\boxed{%s}",
    "lenient_boxed": r"\boxed{%s}",
    "lenient_answer_colon": "Answer: %s",
    "lenient_answer_colon_md": "**Answer**: (%s)",
}
FORMS = (*FORM_OF_MODE.values(), "<choice>%s</choice>", "<answer>%s</answer>", "Option %s", "(%s)", "%s")


def solve(row: dict[str, Any]) -> list[Any]:
    return [f"I have compared the options. {_form(row) % row['expected_answer']}"]


def _form(row: dict[str, Any]) -> str:
    patterns = (row.get("template_metadata") or {}).get("output_regex") or []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        for form in FORMS:
            found = re.findall(pattern, form % row["expected_answer"], re.IGNORECASE)
            if found and row["expected_answer"] in (found[-1], found[-1][0]):
                return form
    return FORM_OF_MODE[row.get("grading_mode") or "strict_single_letter_boxed"]
