"""The tools that the rows of an agent get in the preparation of its data."""

import orjson
import pytest

from tests.rows import rows_of

pytestmark = pytest.mark.slow

CONFIGS = ["workplace_assistant", "mcqa"]


def collated(workplace, *words):
    files = [f"+config_paths=[{','.join(f'resources_servers/{each}/configs/{each}.yaml' for each in CONFIGS)}]"]
    finished = workplace.run("ng_prepare_data", *files, "+output_dirpath=prepared", "+mode=example_validation", *words)
    assert finished.code == 0, finished.err
    return rows_of(workplace.folder / "prepared/example.jsonl"), finished.err


def test_rows_list_the_tools_of_their_environment(workplace):
    rows, _ = collated(workplace)
    of_agent = {}
    for row in rows:
        of_agent.setdefault(row["agent_ref"]["name"], []).append(row["responses_create_params"].get("tools"))
    tools = of_agent.pop("workplace_assistant_simple_agent")
    assert all(each == tools[0] for each in tools)
    assert {"company_directory_find_email_address", "email_send_email"} <= {each["name"] for each in tools[0]}
    assert all(each["type"] == "function" and each["parameters"]["type"] == "object" for each in tools[0])
    assert [each for lists in of_agent.values() for each in lists if each] == []


def test_rows_get_no_tools_if_the_user_says_so(workplace):
    rows, _ = collated(workplace, "+tools=false")
    assert not any("tools" in row["responses_create_params"] for row in rows)


def test_tools_of_a_row_stay_those_that_it_chose(workplace):
    agent = "workplace_assistant_simple_agent"
    own = [{"type": "function", "name": "email_send_email", "parameters": {"type": "object", "properties": {}}}]
    row = {"responses_create_params": {"input": "Hi.", "tools": own}, "ground_truth": [], "id": 0}
    workplace.write("mine.jsonl", orjson.dumps(row).decode() + "\n")
    dataset = "{name: mine, type: example, jsonl_fpath: mine.jsonl}"
    rows, _ = collated(workplace, f"++{agent}.responses_api_agents.simple_agent.datasets=[{dataset}]")
    [mine] = [each for each in rows if each["agent_ref"]["name"] == agent]
    assert mine["responses_create_params"]["tools"] == own


def test_folder_that_cannot_be_imported_is_named(workplace):
    workplace.environment("broken", "import nothing_of_this_name\n")
    config = workplace.folder / "resources_servers/broken/configs/broken.yaml"
    workplace.write("rows.jsonl", '{"responses_create_params": {"input": "Hi."}}\n')
    config.write_text(
        config.read_text()
        + """
broken_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: broken}
      model_server: {type: responses_api_models, name: policy_model}
      datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""
    )
    finished = workplace.run(
        "ng_prepare_data", f"+config_paths=[{config}]", "+output_dirpath=prepared", "+mode=example_validation"
    )
    assert finished.code == 0, finished.err
    assert "note: the rows of broken_agent get no list of tools" in finished.err
    assert "nothing_of_this_name" in finished.err
