"""Each test decides anew what its rollouts do."""

from __future__ import annotations

import pytest

from tests.rollouts.groups.serving import acts


@pytest.fixture(autouse=True)
def begin_again():
    acts.__init__()
