"""The `tls` block: the certificate of this machine's servers, and the authority that clients trust."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.config.hosts import is_any_address, is_loopback, is_of_this_machine

SYSTEM = "system"
"""The value of `ca` that means the authorities that the operating system trusts."""
STRICT_FAULTS = range(79, 94)
"""OpenSSL's codes for certificates that lack extensions, which Python rejects since 3.13."""
STRICT_ADVICE = (
    "Python 3.13 and newer require critical basicConstraints and keyUsage with keyCertSign in an authority's "
    "certificate, and authorityKeyIdentifier in those that it issues. Issue both again with these extensions"
)
"""Advice for the user of such a certificate."""


class TlsBlock(BaseModel):
    """The `tls` block as written in a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca: str = Field(min_length=1)
    """The PEM file of the authorities that clients trust, or `system` for those of the operating system."""
    cert: str | None = None
    """The PEM file of the certificate of this machine's servers, followed by intermediate certificates. Omit the key
    on a machine that only calls servers."""
    key: str | None = None
    """The PEM file of the certificate's private key. The key must not have a passphrase."""

    @model_validator(mode="after")
    def _has_certificate_and_key(self) -> Self:
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise ValueError(f"{given} is set, but {missing} is not. Set both or neither")
        return self


class Tls(TlsBlock):
    """The `tls` block with absolute paths, and the host names in the certificate."""

    names: tuple[str, ...] = ()
    """The host names and addresses for which this machine's certificate is valid."""

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Tls | None:
        """Return the `tls` block of an already checked configuration, or None if it does not have one."""
        block = config.get("tls")
        if not isinstance(block, Mapping) or not block.get("ca"):
            return None
        # Convert the names, because pydantic does not accept OmegaConf's list type.
        return cls(**{**block, "names": tuple(block.get("names") or ())})

    def name_at(self, host: str) -> str:
        """Return the name to check in the certificate of a server at this host.

        This is usually the host itself. Certificates rarely contain loopback addresses. For an address of this machine
        that is not in its certificate, the result is therefore the first name in the certificate.
        """
        if not self.names or _normal(host) in map(_normal, self.names):
            return host
        return self._own_name if is_any_address(host) or is_loopback(host) or is_of_this_machine(host) else host

    @property
    def _own_name(self) -> str:
        # For a wildcard name, return any name that matches it.
        return self.names[0].replace("*", "local", 1)


def scheme_of(tls: Tls | None) -> str:
    return "https" if tls else "http"


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host.lower()
