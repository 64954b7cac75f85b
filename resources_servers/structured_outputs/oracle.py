"""A perfect answer, which is a document that the schema allows."""

import json
from typing import Any

from nemo_gym.testing import call
from resources_servers.structured_outputs.documents import value_for, written


def solve(row: dict[str, Any]) -> list[Any]:
    """Return the document as the answer or as a tool call, as the row requires."""
    schema, schema_type = json.loads(row["schema_str"]), row.get("schema_type", "json")
    value = value_for(schema)
    if row.get("response_mode", "text") == "text":
        return [written(value, schema_type)]
    key = row.get("tool_payload_key")
    document = value if schema_type == "json" else written(value, schema_type)
    return [call(row["tool_name"], **({key: document} if key else value)), "The document is handed in."]
