"""External endpoints that the model servers of a run call."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.errors import ConfigError


def model_endpoints(run: RunConfig) -> dict[str, str]:
    """Return the distinct URLs in the `*base_url` settings of this machine's model servers.

    Each URL is mapped to the flag or key that sets it, for messages. Raise ConfigError for an invalid URL.
    """
    found: dict[str, str] = {}
    policy = run.settings.policy_base_url
    policy_urls = policy if isinstance(policy, list) else [policy]
    for server in run.servers_of("responses_api_models"):
        if server.name not in run.servers_here:
            continue
        for key, value in server.settings.items():
            if not key.endswith("base_url") or not value:
                continue
            for url in value if isinstance(value, list) else [value]:
                if not str(url).startswith(("http://", "https://")):
                    place = server.origins.get(key)
                    raise ConfigError(
                        f"{f'{place}: ' if place else ''}{server.name}: {key} is '{url}', which is not a URL. Write "
                        "it like http://127.0.0.1:8000/v1."
                    )
                endpoint_parts(url, server, key)
                setting = "--model-url" if url in policy_urls else f"{server.name}.{key}"
                found.setdefault(url, setting)
    return found


def endpoint_parts(url: object, server: ServerConfig, key: str) -> SplitResult:
    """Split the URL of an endpoint, which the setting `key` gives. Raise `ConfigError` if it is invalid."""
    try:
        parts = urlsplit(str(url))
        _ = parts.port  # Only this access checks the port.
    except ValueError as error:
        place = server.origins.get(key)
        raise ConfigError(
            f"{f'{place}: ' if place else ''}{server.name}: {key} is '{url}', which is not a valid URL ({error}). "
            "Write it like http://127.0.0.1:8000/v1."
        ) from error
    return parts
