"""The installer for machines without uv."""

import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from nemo_gym.launcher.installers import Pip
from tests.wheel import write_wheel

pytest.importorskip("pip", reason="this environment was made by uv, without pip")

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import shutil


def build_wheel(folder, config_settings=None, metadata_directory=None):
    return shutil.copy("tinydep-1.0-py3-none-any.whl", folder).rpartition("/")[2]
"""


@pytest.fixture
def web_server(tmp_path):
    """A folder and the address at which a web server serves it."""
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def wheel(web_server):
    """The address of a wheel that no package index has."""
    folder, address = web_server
    return f"{address}/{write_wheel(folder).name}"


@pytest.fixture
def repository(web_server):
    """The address of a Git repository with a package, which is built without an index."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder, address = web_server
    write_wheel(folder)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    git = ("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in ("init", "add .", "commit --message First", "update-server-info"):
        subprocess.run([*git, *words.split()], check=True, capture_output=True)
    return f"git+{address}/.git"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["wheel", "repository"])
def test_package_from_an_address_is_resolved_to_that_address(request, tmp_path, source):
    address = request.getfixturevalue(source)
    listed = tmp_path / "requirements.in"
    listed.write_text(f"tinydep @ {address}\n")
    resolved = Pip().resolve(listed, None, tmp_path)
    assert resolved.startswith(f"tinydep @ {address}")
