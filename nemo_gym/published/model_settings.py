"""Settings of published model servers that have another name here."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from nemo_gym.config.models import Origin
from nemo_gym.errors import ConfigError

SAME_VALUE = {
    "is_responses_native": "uses_responses_api",
    "max_concurrent_requests": "max_requests_in_flight",
    "max_http_attempts": "request_tries",
    "num_concurrent_requests": "max_requests_in_flight",
    "openai_default_headers": "default_headers",
    "use_completions_api": "uses_completions_api",
    "vllm_serve_env_vars": "env",
    "vllm_serve_kwargs": "args",
}
OTHER_VALUE: Mapping[str, Mapping[bool, Mapping[str, object]]] = {
    "drop_input_reasoning_items": {True: {"sends_reasoning": "none"}, False: {}},
    # Prompts are always rendered: by the engine for /chat/completions, and by the model server for /completions.
    "render_chat_template": {True: {}, False: {"uses_completions_api": False}},
    "uses_interleaved_reasoning": {True: {}, False: {"sends_reasoning": "none"}},
}
ENDPOINT = "endpoint_"
"""The prefix of published settings that describe the endpoint."""
OF_ENDPOINT = ("base_url", "api_key", "model", "default_headers")
"""The endings of our settings that describe the endpoint."""


def with_our_names(
    kind: type[BaseModel], settings: Mapping[str, object], block: str, origins: Mapping[str, Origin]
) -> dict[str, object]:
    """Return a model server's settings with the published ones renamed, unless the server's class has them itself.

    Raise ConfigError for a setting that cannot be applied, because it may be important, such as a header with a login.
    """
    theirs = [key for key in settings if key not in kind.model_fields and _is_published(key)]
    ours = {key: value for key, value in settings.items() if key not in theirs}
    for key in sorted(theirs, key=lambda each: each not in SAME_VALUE):
        place = f"{origins.get(key, origins.get(''))}: {block}.{key}"
        if key.startswith(ENDPOINT):
            names = ", ".join(name for name in kind.model_fields if name.endswith(OF_ENDPOINT))
            raise ConfigError(f"{place} does not exist here. Describe the endpoint with: {names}.")
        for name, value in _renamed(key, settings[key], place).items():
            if name not in kind.model_fields:
                raise ConfigError(
                    f"{place} needs {name}, which this server does not have. Remove it, or choose a server such as "
                    "vllm_model."
                )
            if ours.setdefault(name, value) != value:
                raise ConfigError(f"{place} contradicts {name}: {ours[name]}. Remove one of them.")
    return ours


def _is_published(key: str) -> bool:
    return key in SAME_VALUE or key in OTHER_VALUE or key.startswith(ENDPOINT)


def _renamed(key: str, value: object, place: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if key in SAME_VALUE:
        return {SAME_VALUE[key]: value}
    # An interpolated environment variable is text.
    flag = {"true": True, "false": False}.get(str(value).lower())
    if flag is None:
        raise ConfigError(f"{place} must be true or false, but is {value!r}.")
    return OTHER_VALUE[key][flag]
