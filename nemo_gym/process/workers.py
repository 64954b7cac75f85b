"""Published functions by which a folder checks whether a uvicorn worker imports its file.

The answer is always no: every process imports the server's class and creates the app itself, so no file has to define
`app`.
"""

from __future__ import annotations

from pydantic import BaseModel


class UvicornLoggingConfig(BaseModel):
    """The setting of whether servers log each successful request."""

    uvicorn_logging_show_200_ok: bool = False


def is_nemo_gym_fastapi_worker() -> bool:
    """Return False: a process never takes its app from the imported file."""
    return False


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Return False: importing a file never has to create its app with `app = X.run_webserver()`."""
    return False
