"""Certificates for tests: an authority, and what it issues."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from nemo_gym.config.tls import Tls

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Issued(NamedTuple):
    """A certificate with its key."""

    cert: Path
    key: Path


class Authority:
    """An authority with its files in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *KEY, "-days", "30", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def issue(self, name: str, alternatives: str, days: int = 20) -> Issued:
        """Issue a certificate for names such as `DNS:node1,IP:10.0.0.1`, which are none if the text is empty."""
        cert, key, request, extension = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        extension.write_text(f"subjectAltName={alternatives}" if alternatives else "")
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
