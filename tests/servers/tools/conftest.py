"""A client of the shop over HTTP."""

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing import make_server
from tests.servers.tools.shop import Shop


@pytest.fixture
def shop():
    with TestClient(make_server(Shop).setup_webserver()) as client:
        yield client


@pytest.fixture
def definitions(shop):
    return {each["name"]: each for each in shop.get("/tools").json()}
