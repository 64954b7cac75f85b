"""A program that behaves like an engine, with the standard library only. Variables select its faults.

STUB_REFUSES_S and STUB_LOADS_S are the times that it refuses connections and answers 503. STUB_CRASHES is an error at
load. With STUB_STUBBORN, its worker ignores SIGTERM. A message "crash" or "hang" has its effect once per folder
STUB_FOLDER, "always crash" each time.
"""

import argparse
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--max-model-len")
parser.add_argument("--served-model-name")
options, _ = parser.parse_known_args()
FOLDER = Path(os.environ["STUB_FOLDER"])
KEY = os.environ["VLLM_API_KEY"]
hung = threading.Event()
loaded_at = 0.0


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_first(what: str) -> bool:
    try:
        (FOLDER / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if hung.is_set():
            time.sleep(3600)
        self.answer(200 if time.monotonic() >= loaded_at else 503, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            self.answer(401, {"error": "wrong key"})
            return
        is_native = self.path == "/v1/responses"
        messages = [{"content": body["input"]}] if is_native else body["messages"] or [{}]
        content = messages[-1].get("content")
        texts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
        text = next(iter(texts), "")
        if text == "always crash" or (text == "crash" and is_first("crash")):
            write("CUDA error: an illegal memory access was encountered")
            os._exit(7)
        if text == "hang" and is_first("hang"):
            hung.set()
            time.sleep(3600)
        if is_native:
            parts = [{"type": "output_text", "text": f"{os.getpid()} {body['model']}", "annotations": []}]
            message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": parts}
            self.answer(200, {"id": "r", "object": "response", "status": "completed", "output": [message]})
            return
        message = {"role": "assistant", "content": f"{os.getpid()} {body['model']}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
        self.answer(200, {**completion, "choices": [choice]})

    def answer(self, status: int, value: object) -> None:
        written = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *_: object) -> None:
        pass


write(f"starting with the key {KEY}, {' '.join(sys.argv[1:])}")
(FOLDER / f"{os.getpid()}.pid").touch()
# A worker in a session of its own, which its parent does not end.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
work = (STUBBORN if "STUB_STUBBORN" in os.environ else "") + "import time; time.sleep(3600)"
worker = subprocess.Popen([sys.executable, "-c", work], start_new_session=True)
(FOLDER / f"{worker.pid}.pid").touch()
if (crashes := os.environ.get("STUB_CRASHES")) and (crashes != "once" or is_first("crashed at load")):
    sys.exit(os.environ.get("STUB_ERROR", "ERROR: unrecognized arguments"))
time.sleep(float(os.environ.get("STUB_REFUSES_S", "0")))
loaded_at = time.monotonic() + float(os.environ.get("STUB_LOADS_S", "0"))
write("Loading safetensors checkpoint shards:  50%")
http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Engine).serve_forever()
