"""Fixtures of all tests of this folder."""

import pytest


@pytest.fixture
def bodies(seen):
    """Return the bodies that reached the endpoint during this test."""
    return lambda: [request["body"] for request in seen()]
