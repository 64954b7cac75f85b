"""The HTTP server of llama.cpp, from the package xllamacpp: `python llama_server.py MODEL PORT KEY CONTEXT`."""

from __future__ import annotations

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.api_keys = [sys.argv[3]]
params.n_parallel = 2
# All slots share the context.
params.n_ctx = params.n_parallel * int(sys.argv[4])
server = xllamacpp.Server(params)
threading.Event().wait()
