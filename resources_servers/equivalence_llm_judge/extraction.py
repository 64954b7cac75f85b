"""What a row says of its question, and of where in a message the answer to it stands."""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import BaseVerifyRequest

ROW_PATTERN = "template_metadata.output_regex"
"""Where a row has a pattern of its own."""


class TemplateMetadata(BaseModel):
    """What is known of the prompt: `output_regex` finds the answer that it asked for, the first of a list first."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | list[str] | None = None


class EquivalenceVerifyRequest(BaseVerifyRequest):
    """A row, and what the model answered."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str = Field(pattern=r"\S")
    question: str | None = None
    template_metadata: TemplateMetadata | None = None


class Patterns(NamedTuple):
    """Patterns in the order in which they are tried, and the key that they stand under."""

    texts: list[str]
    key: str


def patterns_for(
    body: EquivalenceVerifyRequest, *, otherwise: str | None, use_own: bool, longest: int | None
) -> Patterns:
    """Where the answer is looked for: the row's own patterns, `otherwise`, or none.

    None too where the expected answer has more than `longest` characters: so much does not stand in a box.
    """
    if longest is not None and len(body.expected_answer) > longest:
        return Patterns([], "")
    own = body.template_metadata.output_regex if use_own and body.template_metadata else None
    patterns = [pattern for pattern in ([own] if isinstance(own, str) else own or []) if pattern]
    if patterns:
        return Patterns(patterns, ROW_PATTERN)
    return Patterns([otherwise] if otherwise else [], "response_extract_regex")


def last_user_text(body: BaseVerifyRequest) -> str:
    """The text of the last message that the model was sent; empty where there is none."""
    asked = [item for item in body.responses_create_params.input_items if getattr(item, "role", None) == "user"]
    if not asked:
        return ""
    content = asked[-1].content
    return content if isinstance(content, str) else "".join(getattr(part, "text", None) or "" for part in content)
