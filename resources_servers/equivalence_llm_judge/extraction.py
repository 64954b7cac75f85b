"""Read a row's question and the regexes that extract the answer from a message."""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import BaseVerifyRequest
from nemo_gym.grading import AnswerText

ROW_PATTERN = "template_metadata.output_regex"
"""The key of a row's own regexes."""


class TemplateMetadata(BaseModel):
    """Metadata of the prompt. `output_regex` extracts the answer. If it is a list, its regexes are tried in order."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | list[str] | None = None


class EquivalenceVerifyRequest(BaseVerifyRequest):
    """The row and the model's response."""

    model_config = ConfigDict(extra="allow")

    expected_answer: AnswerText = Field(pattern=r"\S")
    question: str | None = None
    template_metadata: TemplateMetadata | None = None


class Patterns(NamedTuple):
    """Regexes in the order in which they are tried, and the key of the row or config that sets them."""

    texts: list[str]
    key: str


def patterns_for(
    body: EquivalenceVerifyRequest, *, otherwise: str | None, use_own: bool, longest: int | None
) -> Patterns:
    """Return the regexes that extract the answer: the row's own, or `otherwise`.

    Return no regexes if the expected answer has more than `longest` characters, because long answers are rarely boxed.
    """
    if longest is not None and len(body.expected_answer) > longest:
        return Patterns([], "")
    own = body.template_metadata.output_regex if use_own and body.template_metadata else None
    patterns = [pattern for pattern in ([own] if isinstance(own, str) else own or []) if pattern]
    if patterns:
        return Patterns(patterns, ROW_PATTERN)
    return Patterns([otherwise] if otherwise else [], "response_extract_regex")


def last_user_text(body: BaseVerifyRequest) -> str:
    """Return the text of the last user message, or an empty string."""
    asked = [item for item in body.responses_create_params.input_items if getattr(item, "role", None) == "user"]
    if not asked:
        return ""
    content = asked[-1].content
    return content if isinstance(content, str) else "".join(getattr(part, "text", None) or "" for part in content)
