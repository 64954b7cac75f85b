"""The README's first command with a real model."""

from __future__ import annotations

import re

import pytest

from tests.engines.conftest import LIMIT_S, REPOSITORY
from tests.rows import rows_of

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


def test_first_command_with_a_real_model(workplace, python, model):
    readme = (REPOSITORY / "README.md").read_text()
    (words,) = re.findall(r"^\$ \.venv/bin/ng (.*cpu_engine.*)$", readme, re.MULTILINE)
    block = "++policy_model.responses_api_models.local_vllm_model"
    finished = workplace.run(
        "ng", *words.split(), f"{block}.python={python}", f"{block}.model={model}", timeout_s=LIMIT_S
    )
    assert finished.code == 0, finished.err
    rows = rows_of(workplace.folder / "results/cpu_engine.jsonl")
    assert f"{len(rows)} planned = {len(rows)} scored + 0 failed" in finished.out
    assert all(row["response"]["usage"]["output_tokens"] for row in rows)
