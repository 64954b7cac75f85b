"""The reasons why a model endpoint does not answer, each with a real server."""

from __future__ import annotations

import http.server
import os
import socketserver
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from nemo_gym.data.download import downloaded
from nemo_gym.errors import DataError, EndpointError
from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI
from nemo_gym.http.probe import Trouble, trouble_of
from nemo_gym.http.tls import server_context
from tests.certificates import Authority
from tests.each_case import each_case

TIMEOUT_S = 60.0


class Refusing(http.server.BaseHTTPRequestHandler):
    """An endpoint that rejects every request, so it is up."""

    def do_GET(self):
        self.send_error(401)

    def log_message(self, *_):
        pass


class Closing(socketserver.BaseRequestHandler):
    """A server that closes each connection after the first bytes."""

    def handle(self):
        self.request.recv(1)


@contextmanager
def serving(handler, context=None):
    """Yield the address of a server. It uses TLS if there is an SSL context."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Return the SSL contexts of servers: one whose authority nobody trusts, and one without a usable cipher."""
    tls = Authority(tmp_path_factory.mktemp("certificates")).tls("endpoint", "127.0.0.1")
    untrusted, strange = server_context(tls), server_context(tls)
    strange.maximum_version = ssl.TLSVersion.TLSv1_2
    strange.set_ciphers("AES256-GCM-SHA384")  # requires an RSA key
    return {"plain": None, "untrusted": untrusted, "strange": strange}


@each_case(
    ("scheme", "handler", "context", "trouble"),
    [
        ("http", Refusing, "plain", None),
        ("https", Refusing, "plain", Trouble.PLAIN),
        ("https", Refusing, "untrusted", Trouble.UNTRUSTED),
        ("https", Refusing, "strange", Trouble.HANDSHAKE),
        ("http", Refusing, "untrusted", Trouble.SILENT),
        ("http", Closing, "plain", Trouble.SILENT),
        ("https", Closing, "plain", Trouble.SILENT),
    ],
)
def test_trouble_with_tls_is_named_rightly(contexts, scheme, handler, context, trouble):
    with serving(handler, contexts[context]) as address:
        assert trouble_of(f"{scheme}://{address}/v1", TIMEOUT_S) is trouble


@each_case(
    ("context", "reason"),
    [
        ("plain", "the server does not speak TLS. Begin its address with http:// instead of https://"),
        (
            "untrusted",
            "the server's certificate is rejected: no authority that this machine trusts issued it. Set the "
            "environment variable SSL_CERT_FILE to the file of its authority",
        ),
        ("strange", "the TLS handshake failed ("),
    ],
)
async def test_failed_calls_and_downloads_say_what_is_wrong_with_tls(contexts, tmp_path, context, reason):
    with serving(Refusing, contexts[context]) as address:
        client = NeMoGymAsyncOpenAI(base_url=f"https://{address}/v1", api_key="key", tries=1)
        with pytest.raises(EndpointError) as failed:
            await client.create_models()
        await client.aclose()
        with (
            pytest.raises(DataError) as undone,
            downloaded(f"https://{address}/x", tmp_path / "x", headers={}, advice={}, otherwise="Copy it."),
        ):
            pass
    assert f"/v1/models could not connect: {reason}" in str(failed.value)
    assert f": no connection to {address} ({reason}" in str(undone.value)


# Run in a process of its own, because OpenSSL reads the variable once. A server's certificate is trusted only with it.
PROBE = """
import sys
from nemo_gym.http.probe import trouble_of
trouble = trouble_of(sys.argv[1], 60.0)
print(trouble and f"{trouble.name}. {trouble.advice}")
"""


@each_case(
    ("trusts", "found"),
    [
        (None, "UNTRUSTED. Set the environment variable SSL_CERT_FILE to the file of its authority"),
        ("authority", "None"),
        ("other", "INVALID. Start it"),
    ],
)
def test_named_variable_makes_the_certificate_trusted(tmp_path_factory, trusts, found):
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    tls = authority.tls("endpoint", "elsewhere.example" if trusts == "other" else "127.0.0.1")
    env = {**os.environ, **({"SSL_CERT_FILE": str(authority.ca)} if trusts else {})}
    with serving(Refusing, server_context(tls)) as address:
        words = [sys.executable, "-c", PROBE, f"https://{address}/v1"]
        probed = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert probed.stdout.strip() == found
