"""A run whose processes may open only a few files: rollouts wait for a free connection, and all are scored."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import orjson
import pytest

from tests.rows import line_count

SCRIPTS = Path(sysconfig.get_path("scripts"))
OPEN_FILES = 256
ROLLOUTS = 400
AGENT = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: plain}
      model_server: {type: responses_api_models, name: policy_model}
"""
START = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, {OPEN_FILES}))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_rollouts_wait_for_free_connections(workplace, endpoint):
    start = str(workplace.write("start.py", START))
    workplace.write("rows.jsonl", orjson.dumps({"responses_create_params": {"input": "hello"}}).decode() + "\n")
    workplace.write("agent.yaml", AGENT)
    files = "agent.yaml,responses_api_models/openai_model/configs/openai_model.yaml"
    servers = workplace.start(
        *("python", start, str(SCRIPTS / "ng_run"), "+head_server.port=0", workplace.environment()),
        *(f"+config_paths=[{files}]", f"+policy_base_url={endpoint}/v1", "+policy_api_key=none"),
        "+policy_model_name=slow:0.5",
    )
    servers.wait_for("head server: ")
    collected = workplace.start(
        *("python", start, str(SCRIPTS / "ng_collect_rollouts"), "+input_jsonl_fpath=rows.jsonl"),
        *("+output_jsonl_fpath=out.jsonl", "+agent_name=agent", f"+num_repeats={ROLLOUTS}"),
        *(f"+num_samples_in_parallel={ROLLOUTS}", f"+head_server.port={servers.head.rpartition(':')[2]}"),
    ).wait(180)
    assert collected.code == 0, collected.err
    assert line_count(workplace.folder / "out.jsonl") == ROLLOUTS
    assert f"{ROLLOUTS} planned = {ROLLOUTS} scored + 0 failed + 0 unresolved" in collected.out
    assert f"because open files are limited to {OPEN_FILES}; raise ulimit -n" in collected.err
    assert servers.end().code == 0
