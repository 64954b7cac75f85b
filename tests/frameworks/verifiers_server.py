"""A program that starts one resources server class as verifiers does, without a configuration.

`python tests/frameworks/verifiers_server.py <module:class> <port file>` writes its port into the file and serves.
"""

from __future__ import annotations

import socket
import sys
from importlib import import_module
from pathlib import Path

import uvicorn
from omegaconf import OmegaConf

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient

HOST = "127.0.0.1"


def main() -> None:
    module_name, class_name = sys.argv[1].split(":")
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    server_class = getattr(import_module(module_name), class_name)
    config_class = server_class.model_fields["config"].annotation
    server = server_class(
        config=config_class(name=module_name.split(".")[-2], host=HOST, port=port, entrypoint="app.py"),
        server_client=ServerClient(
            head_server_config=BaseServerConfig(host=HOST, port=11000), global_config_dict=OmegaConf.create({})
        ),
    )
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    Path(sys.argv[2]).write_text(str(port))
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
