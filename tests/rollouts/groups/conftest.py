"""The rollouts of each test begin without special behaviour."""

from __future__ import annotations

import pytest

from tests.rollouts.groups.serving import acts


@pytest.fixture(autouse=True)
def begin_again():
    acts.__init__()
