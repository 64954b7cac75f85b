"""The known providers, from `providers.json`."""

from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from responses_api_models.vllm_model.reasoning import SentReasoning

Api = Literal["chat", "responses"]
TABLE = Path(__file__).with_name("providers.json")


class Provider(BaseModel):
    """The address of a provider, and how its API differs from others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str
    api: Api = "chat"
    """The API that the provider supports best."""
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The Chat Completions field that limits the answer's length."""
    sends_reasoning: SentReasoning = "none"
    """The form in which the provider expects the reasoning of earlier turns."""


@cache
def providers() -> dict[str, Provider]:
    return TypeAdapter(dict[str, Provider]).validate_json(TABLE.read_bytes())


def provider_named(name: str) -> Provider:
    """Return a known provider. Raise `ValueError` for an unknown name, with suggestions."""
    known = providers()
    if name.lower() in known:
        return known[name.lower()]
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = (
        f"Did you mean {' or '.join(map(repr, close))}?" if close else f"The known providers are {', '.join(known)}."
    )
    raise ValueError(
        f"'{name}' is not a known provider. {hint} For another provider, leave `provider` out and set base_url"
    )
