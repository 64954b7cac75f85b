"""The viewer's application: the built page, the JSON of its API, and access control around both.

The types of the JSON objects are in `viewer/src/api.ts`, the code of the front end.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from nemo_gym.errors import UsageError, UserError
from nemo_gym.viewer import live, routes_rollouts, routes_runs
from nemo_gym.viewer.access import Access, AccessControl
from nemo_gym.viewer.index.place import Missing
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.live import Control
from nemo_gym.viewer.routes_runs import json_response

PAGE = Path(__file__).with_name("page")
"""The folder into which `make viewer` builds the front end."""
TOO_DEEP = "A record is nested too deeply to be shown. Download its raw line instead."


def create_app(library: Library, access: Access, *, control: Control) -> FastAPI:
    """Return the application for the runs of a library. `control` sends requests to running collections."""
    app = api_of(library, control)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    app.add_middleware(GZipMiddleware, compresslevel=6)
    app.add_middleware(AccessControl, access=access)
    return app


def api_of(library: Library, control: Control) -> FastAPI:
    """Return an application with the API alone, without access control."""
    # Disable FastAPI's documentation pages, because they would load scripts from other hosts.
    app = FastAPI(title="nemo_gym viewer", openapi_url=None)
    app.state.library = library
    app.state.control = control
    app.state.streams = live.Streams()
    for routes in (routes_runs, routes_rollouts, live):
        app.include_router(routes.router)
    for kind in (HTTPException, UserError, RequestValidationError, RecursionError, Exception):
        app.add_exception_handler(kind, _explained)
    return app


async def _explained(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException():
            return _problem(error.status_code, error.detail)
        case UsageError():
            return _problem(400, str(error))
        case Missing():
            return _problem(404, str(error))
        case UserError():
            # The files of a run may change or vanish while a page shows them.
            return _problem(409, str(error))
        case RequestValidationError():
            problems = [(".".join(map(str, each["loc"][1:])), each["msg"]) for each in error.errors()]
            return _problem(400, f"{'; '.join(f'{place}: {text}' if place else text for place, text in problems)}.")
        case RecursionError():
            return _problem(409, TOO_DEEP)
    # Omit the traceback, because the server logs it.
    return _problem(500, f"The viewer failed ({type(error).__name__}: {error}). Its terminal has the details.")


def _problem(status: int, sentence: str) -> Response:
    return json_response({"detail": sentence}, status)
