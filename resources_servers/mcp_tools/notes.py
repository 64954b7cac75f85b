"""An MCP server for the example rows: notes in a file. It has only the standard library, so that it starts fast."""

import json
import sys
from pathlib import Path
from typing import Any

NO_SUCH_METHOD, INVALID = -32601, -32602
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "add_note", "description": "Write a note.", "inputSchema": TEXT},
    {"name": "list_notes", "description": "List all notes, one per line.", "inputSchema": NOTHING},
    {"name": "remove_notes", "description": "Remove all notes.", "inputSchema": NOTHING},
]


def call(file: Path, name: str, arguments: dict[str, Any]) -> str:
    """Run a tool. Raise `KeyError` for an unknown tool or a missing argument."""
    notes = file.read_text("utf-8").splitlines() if file.exists() else []
    if name == "list_notes":
        return "\n".join(notes) or "There are no notes."
    notes = {"add_note": lambda: [*notes, str(arguments["text"])], "remove_notes": list}[name]()
    file.write_text("".join(f"{note}\n" for note in notes), "utf-8")
    return f"There are {len(notes)} notes."


def answer(file: Path, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result or the error of a request."""
    if method == "initialize":
        info = {"name": "notes", "version": "1"}
        capable = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": capable}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method != "tools/call":
        return {"error": {"code": NO_SUCH_METHOD, "message": f"unknown method {method}"}}
    try:
        text = call(file, params["name"], params.get("arguments") or {})
    except KeyError as error:
        return {"error": {"code": INVALID, "message": f"{error} is missing or unknown"}}
    return {"result": {"content": [{"type": "text", "text": text}]}}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = answer(Path(sys.argv[1]) / "notes.txt", request["method"], request.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)  # noqa: T201
