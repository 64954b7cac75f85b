"""The tokens of an item, parsed at the first access. A server that only echoes a rollout never parses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from nemo_gym.errors import ModelFailed
from nemo_gym.schemas.base import WireModel

TOKEN_METADATA_FIELDS = (
    "prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts", "sampling_spans",
)  # fmt: skip
REQUIRED_TOKEN_METADATA_FIELDS, OPTIONAL_TOKEN_METADATA_FIELDS = TOKEN_METADATA_FIELDS[:3], TOKEN_METADATA_FIELDS[3:]

_ADAPTERS: dict[str, TypeAdapter[list[Any]]] = {
    "prompt_token_ids": TypeAdapter(list[int]),
    "generation_token_ids": TypeAdapter(list[int]),
    "generation_log_probs": TypeAdapter(list[float]),
}


def without_tokens(item: Mapping[str, object]) -> Any:
    """Return the fields of an item except its tokens."""
    return {name: value for name, value in item.items() if name not in TOKEN_METADATA_FIELDS}


class Unparsed:
    """The value of a token field as a JSON array that has not been parsed yet."""

    __slots__ = ("field", "text")

    def __init__(self, field: str, text: bytes) -> None:
        self.field = field
        self.text = text

    def parsed(self) -> list[Any]:
        """Return the numbers. Raise `ModelFailed` if the array is invalid."""
        try:
            return _ADAPTERS[self.field].validate_json(self.text)
        except ValidationError as error:
            raise ModelFailed(f"{self.field} of the model's answer is invalid: {error}") from error

    def __eq__(self, other: object) -> bool:
        return self.parsed() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.parsed())


def _keep(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    return value if isinstance(value, Unparsed) else validate(value)


def _plain(value: Any) -> Any:
    return value.parsed() if isinstance(value, Unparsed) else value


_MayBeUnparsed = WrapValidator(_keep)
_Ids = Annotated[list[int], _MayBeUnparsed, PlainSerializer(_plain, return_type=list[int])]
_LogProbs = Annotated[list[float], _MayBeUnparsed, PlainSerializer(_plain, return_type=list[float])]


class TokenIDLogProbMixin(WireModel):
    """The tokens of an item, for training.

    `generation_log_probs` has the natural logarithm of the probability of each generated token. `routed_experts` is
    the choice of a mixture-of-experts router, as sent by the engine. Each of the `sampling_spans` has a number of
    `tokens`, the times `began_at` and `ended_at` in seconds since the epoch, and perhaps the `weight_version`.
    """

    prompt_token_ids: _Ids
    generation_token_ids: _Ids
    generation_log_probs: _LogProbs
    routed_experts: str | list[object] | None = None
    sampling_spans: list[dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        return ((name, _plain(value)) for name, value in super().__iter__())


class _ParsedOnAccess:
    """A field of `TokenIDLogProbMixin` whose unparsed value is parsed at the first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, item: TokenIDLogProbMixin | None, owner: type[TokenIDLogProbMixin]) -> Any:
        # Raise an error if the class is accessed or the value is missing, as pydantic does for its fields.
        if item is None or self._name not in item.__dict__:
            raise AttributeError(self._name)
        value = item.__dict__[self._name]
        if isinstance(value, Unparsed):
            value = item.__dict__[self._name] = value.parsed()
        return value

    def __set__(self, item: TokenIDLogProbMixin, value: object) -> None:
        item.__dict__[self._name] = value

    def __delete__(self, item: TokenIDLogProbMixin) -> None:
        del item.__dict__[self._name]


for _name in REQUIRED_TOKEN_METADATA_FIELDS:
    # Pydantic removes fields from the attributes of a class, so set these attributes after the class is created.
    setattr(TokenIDLogProbMixin, _name, _ParsedOnAccess(_name))
