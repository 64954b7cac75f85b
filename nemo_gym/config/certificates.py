"""Checks of the `tls` block: its keys, the certificate, the private key and the certificate authority."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from nemo_gym.config.explain import explain_validation
from nemo_gym.config.models import Origin, RunConfig
from nemo_gym.config.tls import STRICT_ADVICE, STRICT_FAULTS, SYSTEM, Tls, TlsBlock
from nemo_gym.errors import ConfigError
from nemo_gym.jsonl import JsonObject
from nemo_gym.text import did_you_mean_or_all

NAMES = "names"
HINTS = {
    "expired": "Renew it.",
    "not yet valid": "Check this machine's clock.",
    "local issuer": "Set tls.ca to the authority that issued it, and add intermediate certificates to tls.cert.",
    "self-signed": "Set tls.ca to that certificate, or to the one of the authority that issued it.",
}
"""Advice for the user, keyed by a substring of OpenSSL's error message."""


def tls_of(given: object, places: Mapping[str, Origin]) -> Tls:
    """Return the `tls` block. Raise `ConfigError` if its keys or files are invalid."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{places.get('tls')}: tls must be a mapping with the files ca, cert and key, but is {given!r}."
        )
    below = {key.removeprefix("tls."): place for key, place in places.items() if key.startswith("tls.")}
    at = {"": places["tls"], **below} if "tls" in places else below
    # An already loaded configuration also contains `names`. Drop it, because the names are read from the certificate.
    given = {str(key): value for key, value in given.items() if key != NAMES}
    unknown = [key for key in given if key not in TlsBlock.model_fields]
    if unknown:
        hint = did_you_mean_or_all(unknown[0], TlsBlock.model_fields, "keys", if_none="")
        raise ConfigError(f"{at.get(unknown[0])}: tls.{unknown[0]} is not a known key.{hint}")
    try:
        block = TlsBlock.model_validate(given)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, block="tls", origins=at)) from error
    files: dict[str, str] = {}
    for name, path in block.model_dump(exclude_none=True).items():
        files[name] = path if path == SYSTEM and name == "ca" else _readable(name, path, at)
    tls = Tls(**files)
    client = _client(tls, at)
    return tls.model_copy(update={NAMES: _names(tls, client, at)}) if tls.cert else tls


def check_can_serve(run: RunConfig) -> None:
    """Raise `ConfigError` if a run with `tls` has no certificate for the servers of this machine."""
    if run.tls is not None and run.tls.cert is None:
        raise ConfigError(
            f"{run.origins.get('tls')}: tls has a ca, but no certificate for the servers of this machine. Set "
            "tls.cert and tls.key to their files."
        )


def _readable(name: str, path: str, at: Mapping[str, Origin]) -> str:
    file = Path(path).expanduser().absolute()
    try:
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise ConfigError(
            f"{at.get(name)}: tls.{name}: cannot read {file} ({error.strerror}). Correct the path. A relative "
            "path starts at the working directory."
        ) from error
    return str(file)


def _names(tls: Tls, client: ssl.SSLContext, at: Mapping[str, Origin]) -> tuple[str, ...]:
    """Return the certificate's host names. Raise `ConfigError` if clients with this `ca` reject the certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Pass a function for the passphrase, because otherwise OpenSSL would prompt for it at the terminal.
        server.load_cert_chain(str(tls.cert), str(tls.key), password=_no_passphrase)
    except (ssl.SSLError, _PassphraseError) as error:
        raise _unusable(tls, error, at) from error
    try:
        certificate = _seen_certificate(server, client)
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message
        advice = next((hint for part, hint in HINTS.items() if part in reason), "Correct tls.cert or tls.ca.")
        if error.verify_code in STRICT_FAULTS:
            advice = f"{STRICT_ADVICE}."
        raise ConfigError(
            f"{at.get('cert')}: tls.cert: clients that trust {tls.ca} reject {tls.cert}: {reason}. {advice}"
        ) from error
    names = tuple(str(value) for _, value in certificate.get("subjectAltName", ()))
    if not names:
        raise ConfigError(
            f"{at.get('cert')}: tls.cert: {tls.cert} has no subject alternative names, so clients reject it for "
            "every host. Issue a certificate for the names and addresses by which this machine's servers are called."
        )
    return names


def _unusable(tls: Tls, error: Exception, at: Mapping[str, Origin]) -> ConfigError:
    if isinstance(error, _PassphraseError):
        return ConfigError(f"{at.get('key')}: tls.key: {tls.key} has a passphrase. Use a file without one.")
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return ConfigError(
            f"{at.get('key')}: tls.key: {tls.key} is not the key of the certificate {tls.cert}. Set both to "
            "files that belong together."
        )
    name, kind = ("key", "key") if _has_certificate(Path(str(tls.cert))) else ("cert", "certificate")
    file = getattr(tls, name)
    return ConfigError(f"{at.get(name)}: tls.{name}: {file} is not a {kind} in PEM format. Convert it with openssl.")


def _has_certificate(path: Path) -> bool:
    try:
        return bool(ssl.PEM_cert_to_DER_cert(path.read_text().partition("-----END")[0] + "-----END CERTIFICATE-----"))
    except ValueError:
        return False


def _client(tls: Tls, at: Mapping[str, Origin]) -> ssl.SSLContext:
    try:
        client = ssl.create_default_context(cafile=None if tls.ca == SYSTEM else tls.ca)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{at.get('ca')}: tls.ca: {tls.ca} has no certificates in PEM format. Set it to the certificate of "
            "the authority."
        ) from error
    client.check_hostname = False
    return client


def _seen_certificate(server: ssl.SSLContext, client: ssl.SSLContext) -> JsonObject:
    """Perform a TLS handshake in memory. Return the certificate that the client receives."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    is_done = False
    while not is_done:
        is_done = True
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                is_done = False
    return dict(ours.getpeercert() or {})


class _PassphraseError(Exception):
    """The error for a key file with a passphrase."""


def _no_passphrase() -> str:
    raise _PassphraseError
