"""What a published folder's file asks of the process that imports it.

Several workers of a server are processes of one kind here: each is handed the server's class and makes the app itself,
so no file has to leave an `app` behind for them.
"""

from __future__ import annotations

from pydantic import BaseModel


class UvicornLoggingConfig(BaseModel):
    """Whether servers log each request that they answered well."""

    uvicorn_logging_show_200_ok: bool = False


def is_nemo_gym_fastapi_worker() -> bool:
    """Whether this process takes the app from the imported file; it never does."""
    return False


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether importing this file has to make the app: `elif …(__file__): app = X.run_webserver()` is never needed."""
    return False
