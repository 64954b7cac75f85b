"""A run waits for the endpoint of its model server before it reports that it is ready."""

from __future__ import annotations

import http.server
import os
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import orjson
import pytest

from tests.conftest import PATIENCE_S
from tests.waiting import until

pytestmark = pytest.mark.slow

HEAD = "+head_server.port=0"
MODEL = "+config_paths=[responses_api_models/openai_model/configs/openai_model.yaml]"


class Refusing(http.server.BaseHTTPRequestHandler):
    """An endpoint that rejects every request, so it is up."""

    def do_GET(self):
        self.send_error(401)

    def log_message(self, *_):
        pass


def settings_for(port):
    return [
        f"+policy_base_url=http://127.0.0.1:{port}/v1",
        "+policy_api_key=none",
        "+policy_model_name=none",
        MODEL,
        HEAD,
    ]


@pytest.fixture
def silent_port():
    """A reserved port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


ADDRESS = "--model-url"
REMEDY = (
    f"Start it, correct its address ({ADDRESS}), or set --model_endpoint_readiness_timeout_seconds SECONDS to wait "
    "longer, 0 to continue without it."
)


@pytest.mark.parametrize(
    ("address", "cause"),
    [("127.0.0.1:{port}", "connection refused"), ("no-such-host.invalid", "the name does not resolve")],
)
def test_unreachable_endpoint_is_named_with_its_cause(workplace, silent_port, address, cause):
    endpoint = f"model endpoint http://{address.format(port=silent_port)}/v1"
    words = [
        word.replace(f"127.0.0.1:{silent_port}", address.format(port=silent_port))
        for word in settings_for(silent_port)
    ]
    started_at = time.monotonic()
    command = workplace.start("ng_run", *words, "+model_endpoint_readiness_timeout_seconds=2")
    assert command.wait().code == 1
    assert time.monotonic() - started_at > 2
    assert "servers ready" not in command.out
    *waiting, gave_up = command.err.splitlines()
    progress = (
        rf"waiting for the {re.escape(endpoint)}: {cause} \(\d+ of 2 s\)\. {re.escape(ADDRESS)} sets the address\."
    )
    # On a busy machine the first look may take longer than the limit.
    assert all(re.fullmatch(progress, line) for line in waiting)
    assert re.fullmatch(rf"Error: {re.escape(endpoint)}: {cause}, for \d+ s\. {re.escape(REMEDY)}", gave_up)
    assert workplace.left_over() == []


@pytest.mark.parametrize(("host", "limit"), [("127.0.0.1", "60"), ("no-such-host.invalid", "8")])
def test_wrong_address_has_a_shorter_limit_by_default(workplace, silent_port, host, limit):
    command = workplace.start("ng_run", *(word.replace("127.0.0.1", host) for word in settings_for(silent_port)))
    assert f" of {limit} s). {ADDRESS} sets the address." in command.wait_for("waiting for the model endpoint")
    command.end()


@pytest.mark.slow
def test_endpoint_that_accepts_but_never_answers_times_out(workplace):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        finished = workplace.run("ng_run", *settings_for(port), "+model_endpoint_readiness_timeout_seconds=1")
    assert finished.code == 1


@pytest.mark.slow
def test_any_status_of_the_endpoint_is_accepted(workplace):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing, bind_and_activate=False) as endpoint:
        endpoint.server_bind()
        command = workplace.start("ng_run", *settings_for(endpoint.server_port))
        command.wait_for("waiting for the model endpoint")
        assert "servers ready" not in command.out
        endpoint.server_activate()
        answering = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
        answering.start()
        assert "1 / 1 servers ready" in command.wait_for("head server: ")
        endpoint.shutdown()
        answering.join()
    assert command.end().code == 0


def readiness(head, path):
    try:
        with urllib.request.urlopen(f"{head}{path}", timeout=100) as answer:
            return answer.status, orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, orjson.loads(error.read())


def test_readiness_waits_for_the_endpoint(workplace):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing, bind_and_activate=False) as endpoint:
        endpoint.server_bind()
        url = f"http://127.0.0.1:{endpoint.server_port}/v1"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            head_port = free.getsockname()[1]
        head = f"http://127.0.0.1:{head_port}"
        command = workplace.start("ng_run", *settings_for(endpoint.server_port)[:-1], f"+head_server.port={head_port}")
        command.wait_for("waiting for the model endpoint")
        waiting = {"status": "waiting", "missing": {url: "no answer yet"}}
        for path in ("/readyz", "/healthz", "/health"):
            assert readiness(head, path) == (503, waiting)
        assert readiness(head, "/livez") == (200, {"status": "ok"})
        endpoint.server_activate()
        answering = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
        answering.start()
        command.wait_for("head server: ")
        # The head server asks the endpoint itself, and gives it two seconds.
        until(lambda: readiness(head, "/readyz") == (200, {"status": "ok", "missing": {}}), within_s=PATIENCE_S)
        endpoint.shutdown()
        answering.join()
    # The state stays ready. Rollouts report later failures of the endpoint.
    assert readiness(head, "/readyz") == (200, {"status": "ok", "missing": {}})
    assert command.end().code == 0


def test_zero_timeout_does_not_wait(workplace, silent_port):
    command = workplace.start("ng_run", *settings_for(silent_port), "+model_endpoint_readiness_timeout_seconds=0")
    # Waiting for this line matters: a Ctrl-C during the imports for the table may be lost.
    assert "1 / 1 servers ready" in command.wait_for("head server: ")
    assert readiness(command.head, "/readyz") == (200, {"status": "ok", "missing": {}})
    finished = command.end()
    assert (finished.code, finished.err) == (0, "")


@pytest.mark.parametrize("url", ["localhost:8000/v1", "8000"])
def test_endpoint_address_without_scheme_is_reported(workplace, url):
    finished = workplace.run(
        "ng_run", f"+policy_base_url={url}", "+policy_api_key=none", "+policy_model_name=none", MODEL, HEAD
    )
    assert finished.code == 1
    assert f"openai_base_url is '{url}', which is not a URL. Write it like http://127.0.0.1:8000/v1." in finished.err


@pytest.mark.slow
def test_server_death_while_waiting_ends_the_run(workplace, silent_port):
    command = workplace.start("ng_run", *settings_for(silent_port), "+restart_limit=0")
    command.wait_for("waiting for the model endpoint")
    model = next(
        process for process in workplace.processes() if process.cwd().endswith("responses_api_models/openai_model")
    )
    os.kill(model.pid, signal.SIGKILL)
    finished = command.wait()
    assert finished.code == 1
    assert "Error: server 'policy_model' was ended by SIGKILL" in finished.err


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000x/v1", "http://[::1/v1"])
def test_endpoint_address_that_cannot_be_split_is_reported(workplace, url):
    words = ("+policy_api_key=none", "+policy_model_name=none", MODEL, HEAD)
    finished = workplace.run("ng_run", f"+policy_base_url='{url}'", *words)
    assert (finished.code, finished.err.count("\n")) == (1, 1)
    assert f"openai_base_url is '{url}', which is not a valid URL (" in finished.err
