"""Certificates for tests: an authority, and what it issues."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from nemo_gym.config.tls import Tls

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
KEY_USAGE = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
"""What an authority's certificate needs since Python 3.13."""


class Issued(NamedTuple):
    """A certificate with its key."""

    cert: Path
    key: Path


class Authority:
    """An authority with its files in a folder. Python 3.13 rejects its certificates unless `is_strict`."""

    def __init__(self, folder: Path, name: str = "authority", *, is_strict: bool = True) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self.folder, self._is_strict = folder, is_strict
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        made = ("-x509", *KEY, "-days", "30", "-subj", f"/CN={name}", *(KEY_USAGE if is_strict else ()))
        _openssl("req", *made, "-keyout", self._key, "-out", self.ca)

    def issue(self, name: str, alternatives: str, days: int = 20) -> Issued:
        """Issue a certificate for names such as `DNS:node1,IP:10.0.0.1`, which are none if the text is empty."""
        cert, key, request, extension = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        identifier = "authorityKeyIdentifier=keyid\n" if self._is_strict else ""
        extension.write_text(identifier + (f"subjectAltName={alternatives}\n" if alternatives else ""))
        _openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        authority = ("-CA", self.ca, "-CAkey", self._key, "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *authority, "-days", days, "-extfile", extension, "-out", cert)
        return Issued(cert, key)

    def tls(self, name: str, *alternatives: str, days: int = 20) -> Tls:
        """Issue a certificate for these host names and addresses, and return the settings of a server that has it."""
        listed = [f"{'IP' if each[0].isdigit() or ':' in each else 'DNS'}:{each}" for each in alternatives]
        cert, key = self.issue(name, ",".join(listed), days)
        return Tls(ca=str(self.ca), cert=str(cert), key=str(key), names=alternatives)

    @property
    def trusted(self) -> Tls:
        """The settings of a caller without a certificate."""
        return Tls(ca=str(self.ca))


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
