"""The tokens that the model calls of a run's rollouts have used, and their cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.config.explain import explained_in_a_line
from nemo_gym.errors import DataError
from nemo_gym.records.usage import usage_of
from nemo_gym.schemas.row import Row

PER = 1_000_000
"""The number of tokens that a price is for."""
DEFAULT_MODEL = "default"
_DATE = re.compile(r"-\d{4}(-\d\d){0,2}$|-\d{6,8}$")
"""A regular expression for the date at the end of model names such as `small-2026-01-31` and `small-20260131`."""


class Price(BaseModel):
    """A model's prices per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """The price of a million input tokens that the endpoint had cached. Default: the price of other input tokens."""


class PriceFile(BaseModel):
    """A price list: each model with its price, and the currency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = "USD"
    models: dict[str, Price] = Field(min_length=1)
    """The price of each model, keyed by the name that the endpoint returns, with or without its date.

    The key `default` is for all other models.
    """

    @classmethod
    def read(cls, path: Path) -> PriceFile:
        """Read a price list from a YAML file. If the list is invalid, raise `DataError` with the file and the key."""
        try:
            content = yaml.safe_load(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise DataError(f"prices: file '{path}' not found. Check the path.") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise DataError(
                f"prices: {path} cannot be read: {' '.join(str(error).split())}. Use a readable YAML file."
            ) from error
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            example = "models: {my-model: {input: 2.5, cached_input: 0.25, output: 10}}"
            raise DataError(
                f"prices: {path}: {explained_in_a_line(error)}. Write prices per million tokens: {example}"
            ) from error

    def of(self, model: str) -> Price | None:
        """Return the price of a model: by its exact name, else by its name without a date, else the default."""
        return self.models.get(model) or self.models.get(_DATE.sub("", model)) or self.models.get(DEFAULT_MODEL)


class Tokens(NamedTuple):
    """Counts of input, cached and output tokens."""

    input: int = 0
    """All input tokens, including the cached ones."""
    cached: int = 0
    """Input tokens that the endpoint had cached."""
    output: int = 0

    @classmethod
    def of(cls, counts: object) -> Tokens | None:
        """Return the token counts of an answer, given its field `usage`; None if the endpoint did not report them."""
        usage = usage_of(counts)
        if usage.tokens_in is None or usage.tokens_out is None:
            return None
        return cls(usage.tokens_in, min(usage.cached_tokens or 0, usage.tokens_in), usage.tokens_out)

    @property
    def total(self) -> int:
        """The sum of input and output tokens."""
        return self.input + self.output

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.cached + other.cached, self.output + other.output)

    def cost(self, price: Price) -> float:
        cached = price.input if price.cached_input is None else price.cached_input
        return ((self.input - self.cached) * price.input + self.cached * cached + self.output * price.output) / PER


@dataclass
class Usage:
    """The tokens of a run's rollouts by model, as the endpoints reported them.

    Calls of the policy model and of simulated users are included. Calls of judges are not included.
    """

    by_model: dict[str, Tokens] = field(default_factory=dict)
    rollouts: int = 0
    """The number of rollouts and failed attempts whose tokens are known."""
    unknown: int = 0
    """The number of scored rollouts whose endpoint did not report tokens."""

    def add(self, used: Mapping[str, Tokens], *, is_scored: bool) -> None:
        """Add the tokens of a scored rollout or of a failed attempt by model. No model means that they are unknown."""
        if not used:
            self.unknown += is_scored
            return
        self.rollouts += 1
        for model, tokens in used.items():
            self.by_model[model] = self.by_model.get(model, Tokens()).plus(tokens)

    @property
    def tokens(self) -> Tokens:
        return reduce(Tokens.plus, self.by_model.values(), Tokens())

    def cost(self, prices: PriceFile) -> float:
        """Return the cost of all tokens. Tokens of models without a price (see `unpriced`) are left out."""
        return cost_of(self.by_model, prices)

    def unpriced(self, prices: PriceFile) -> list[str]:
        """Return the models that the price list lacks."""
        return [model for model in self.by_model if prices.of(model) is None]

    def described(self, prices: PriceFile | None) -> str:
        """Return the totals as one line for the user, or an empty string if no tokens are known."""
        tokens = self.tokens
        if not self.rollouts:
            return ""
        cached = f" ({100 * tokens.cached / tokens.input:.0f} % cached)" if tokens.cached else ""
        line = f"{tokens.input:,} input{cached} + {tokens.output:,} output"
        if self.unknown:
            line += f", without {self.unknown} rollouts for which the endpoint reported none"
        if prices is None:
            return line
        unpriced = self.unpriced(prices)
        without = f", without {', '.join(unpriced)}, which the price file does not list" if unpriced else ""
        return f"{line}; cost: {self.cost(prices):,.4g} {prices.currency}{without}"

    def as_dict(self, prices: PriceFile | None) -> dict[str, object]:
        """Return the totals in the format of the run's record."""
        tokens = self.tokens
        written: dict[str, object] = {
            "input_tokens": tokens.input,
            "cached_tokens": tokens.cached,
            "output_tokens": tokens.output,
            "rollouts_without_usage": self.unknown,
        }
        return written if prices is None else {**written, "cost": self.cost(prices), "currency": prices.currency}


def tokens_of(row: Row) -> dict[str, Tokens]:
    """Return the tokens of a rollout or of a failed attempt by model. Empty if the endpoint did not report them."""
    tokens = Tokens.of(row.usage)
    if tokens is None:
        return {}
    used = {str((row.response or {}).get("model")): tokens}
    # Agents add the tokens and the name of the model that played the user.
    if (of_user := Tokens.of(row.fields.get("user_usage"))) is not None:
        user = str(row.fields.get("user_model"))
        used[user] = used.get(user, Tokens()).plus(of_user)
    return used


def cost_of(used: Mapping[str, Tokens], prices: PriceFile) -> float:
    """Return the cost of tokens by model. Tokens of models without a price are left out."""
    return sum(tokens.cost(price) for model, tokens in used.items() if (price := prices.of(model)) is not None)
