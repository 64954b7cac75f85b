"""Published functions with which a server's file checks whether uvicorn expects an app from it.

They always return False, because every process imports the server's class and creates the app itself. Thus, no file
has to define `app`.
"""

from __future__ import annotations

from pydantic import BaseModel


class UvicornLoggingConfig(BaseModel):
    """The setting that makes servers log each successful request."""

    uvicorn_logging_show_200_ok: bool = False


def is_nemo_gym_fastapi_worker() -> bool:
    """Return False: workers never import a server's file to get its app. Published folders ask this."""
    return False


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Return False: no file has to define `app = X.run_webserver()` for workers. Published folders ask this."""
    return False
