"""An MCP server over stdin and stdout that goes wrong in the way its first argument names."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

KIND = sys.argv[1]
MEBIBYTE = 2**20
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
names = ["act", "act/2", "verify", "x" * 70, "a.b", "a_b"] if KIND == "names" else ["act"]


def say(**message):
    junk(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def junk(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(arguments):  # noqa: PLR0912 - one branch for each kind
    content = [{"type": "text", "text": json.dumps(arguments)}]
    if KIND == "hangs":
        time.sleep(600)
    if KIND == "dies":
        sys.exit("the database is gone")
    if KIND == "closes":
        os.close(1)
        time.sleep(600)
    if KIND == "long line":
        junk("x" * 64 * MEBIBYTE + "\n")
    if KIND == "endless line":
        while True:
            junk("x" * MEBIBYTE)
    if KIND == "endless lines":
        while True:
            junk("no message\n" * 10_000)
    if KIND == "endless messages":
        while True:
            say(method="notifications/message", params={"level": "info", "data": "x"})
    if KIND == "large":
        content[0]["text"] = "x" * 64 * MEBIBYTE
    if KIND == "wrong":
        return {"content": "no list"}
    if KIND == "images":
        link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
        sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
        note = {"type": "resource", "resource": {"uri": "file:///b", "text": "B"}}
        content += [{"type": "image", "data": PIXEL, "mimeType": "image/png"}, sound, link, note]
    if KIND == "error":
        return {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    if KIND == "changes":
        names[:] = ["act", f"act_{len(names)}"]
        say(method="notifications/tools/list_changed")
    if KIND == "secret":
        content[0]["text"] = f"the key is {os.environ['API_KEY']}"
    return {"content": content}


def result_of(method, params):
    if method == "initialize":
        info = {"name": "stub", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": ["wrong"] if KIND == "schema" else {}}
        more = {"nextCursor": "again"} if KIND == "pages" else {}
        return {"tools": [{"name": name, "inputSchema": schema} for name in names], **more}
    return answer(params.get("arguments"))


if KIND == "exits":
    sys.exit("no such option; my key is " + os.environ.get("API_KEY", ""))
if KIND == "silent":
    time.sleep(600)
if KIND == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Its child keeps the pipes open and leaves the group.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"], start_new_session=True)
    Path("pid").write_text(str(os.getpid()))
if KIND == "banner":
    junk("Welcome!\n{}\n[1, 2\n\xff\n")
if KIND == "floods":
    sys.stderr.write("x" * 8 * MEBIBYTE)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "server/discover":
        say(id=request["id"], error={"code": -32601, "message": "unknown method"})
    elif KIND == "rejects" and request["method"] == "tools/call":
        say(id=request["id"], error={"code": -32602, "message": "the argument x is missing"})
    else:
        say(id=request["id"], result=result_of(request["method"], request.get("params")))
if KIND == "stays":
    time.sleep(600)
