"""Tests of the `tls` block."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.config.certificates import check_can_serve
from nemo_gym.config.tls import SYSTEM, Tls
from nemo_gym.errors import ConfigError
from nemo_gym.published.whole_config import run_of_config
from tests.certificates import Authority
from tests.each_case import each_case

pytestmark = pytest.mark.bare

FILES = "cert: here.pem, key: here.key"
IS_STRICT = bool(ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates of all kinds."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    Authority(folder, "another")
    authority.issue("here", "DNS:*.gym.internal,IP:10.1.2.3")
    authority.issue("nameless", "")
    authority.issue("expired", "DNS:here", days=-1)
    Authority(folder, "lax", is_strict=False).issue("plain", "DNS:here")
    (folder / "words.pem").write_text("words")
    lock = ("openssl", "pkey", "-aes256", "-passout", "pass:secret", "-in", "here.key", "-out", "locked.key")
    subprocess.run(lock, check=True, cwd=folder)
    return folder


@pytest.fixture
def inside(folder: Path, project, monkeypatch):
    """The project, in the folder of the certificates."""
    monkeypatch.chdir(folder)
    project.root = folder
    return project


@each_case(
    ("block", "problem"),
    [
        ("true", "tls: it must be a mapping, but is True."),
        ("{}", "tls.ca: it is missing"),
        ("{ca: authority.pem, crt: here.pem}", "tls.crt is not a known key. Did you mean 'cert'?"),
        ("{ca: authority.pem, cert: here.pem}", "cert is set, but key is not"),
        ("{ca: [authority.pem]}", "tls.ca: "),
        ("{ca: missing.pem}", "missing.pem (No such file or directory). Correct the path"),
        ("{ca: words.pem}", "words.pem has no certificates in PEM format"),
        ("{ca: words.pem, " + FILES + "}", "words.pem has no certificates in PEM format"),
        ("{ca: authority.pem, cert: words.pem, key: here.key}", "words.pem is not a certificate in PEM format"),
        ("{ca: authority.pem, cert: here.pem, key: words.pem}", "words.pem is not a key in PEM format"),
        ("{ca: authority.pem, cert: here.pem, key: locked.key}", "locked.key has a passphrase. Use a file without"),
        ("{ca: authority.pem, cert: here.pem, key: nameless.key}", "is not the key of the certificate"),
        ("{ca: authority.pem, cert: expired.pem, key: expired.key}", "certificate has expired. Renew it."),
        ("{ca: another.pem, " + FILES + "}", "Set tls.ca to the authority that issued it"),
        ("{ca: system, " + FILES + "}", "clients that trust system reject"),
        ("{ca: authority.pem, cert: nameless.pem, key: nameless.key}", "has no subject alternative names"),
        *[("{ca: lax.pem, cert: plain.pem, key: plain.key}", "keyUsage with keyCertSign")] * IS_STRICT,
    ],
)
def test_invalid_block_is_rejected(block, problem, inside):
    message = inside.refusal(ConfigError, f"tls: {block}")
    assert problem in message
    assert message.startswith("main.yaml:1: tls")


def test_paths_become_absolute(inside):
    run = inside.load_text("tls: {ca: authority.pem, " + FILES + "}")
    folder = inside.root
    assert run.tls == Tls(
        ca=f"{folder}/authority.pem",
        cert=f"{folder}/here.pem",
        key=f"{folder}/here.key",
        names=("*.gym.internal", "10.1.2.3"),
    )
    assert run.head.url == "https://127.0.0.1:11000"
    assert AddressBook.of_run(run).tls == run_of_config(run.plain).tls == run.tls


def test_servers_need_a_certificate(inside):
    run = inside.load_text("tls: {ca: authority.pem}")
    with pytest.raises(ConfigError, match=r"main\.yaml:1: tls has a ca, but no certificate"):
        check_can_serve(run)
    check_can_serve(inside.load_text("tls: {ca: authority.pem, " + FILES + "}"))


@each_case(
    ("words", "problem"),
    [
        (["+join=https://10.0.0.5:11000"], "+join=https://10.0.0.5:11000: join is https://10.0.0.5:11000, but this "),
        (["+join=http://10.0.0.5:11000", "+tls.ca=authority.pem"], "but this configuration has tls. Write https."),
        (["+join=https://10.0.0.5:11000", "+tls.ca=authority.pem"], None),
        (["+join=10.0.0.5", "+tls.ca=authority.pem"], None),
    ],
)
def test_join_must_have_the_same_scheme(words, problem, inside):
    if problem:
        assert problem in inside.refusal(ConfigError, "", *words)
        return
    head = inside.load_text("", *words).head
    assert head.url in ("https://10.0.0.5:11000", "http://10.0.0.5:11000")
    assert head.tls == Tls(ca=f"{inside.root}/authority.pem")


@each_case(
    ("names", "host", "name"),
    [
        ((), "127.0.0.1", "127.0.0.1"),
        (("node1",), "127.0.0.1", "node1"),
        (("node1",), "localhost", "node1"),
        (("node1",), "0.0.0.0", "node1"),
        (("node1", "127.0.0.1"), "127.0.0.1", "127.0.0.1"),
        (("node1", "0:0:0:0:0:0:0:1"), "::1", "::1"),
        (("*.gym.internal",), "::1", "local.gym.internal"),
        (("node1",), "node2", "node2"),
        (("node1",), "192.0.2.7", "192.0.2.7"),
    ],
)
def test_own_addresses_have_the_name_of_the_certificate(names, host, name):
    assert Tls(ca=SYSTEM, names=names).name_at(host) == name
