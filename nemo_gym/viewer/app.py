"""The viewer's application: the built page, the JSON of its API, and access control around both.

The types of the JSON objects are in `viewer/src/api.ts`, the code of the front end.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from nemo_gym.errors import UsageError, UserError
from nemo_gym.viewer import live, routes_rollouts, routes_runs
from nemo_gym.viewer.access import Access, AccessControl
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.live import Control
from nemo_gym.viewer.routes_runs import json_response

PAGE = Path(__file__).with_name("page")
"""The folder into which `make viewer` builds the front end."""


def create_app(library: Library, access: Access, *, control: Control) -> FastAPI:
    """Return the application for the runs of a library. `control` sends requests to running collections."""
    app = api_of(library, control)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
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
    app.add_exception_handler(HTTPException, _rejected)
    app.add_exception_handler(UserError, _fault_of_files)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(Exception, _bug)
    return app


async def _rejected(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail)


async def _fault_of_files(request: Request, error: Exception) -> Response:
    # Return status 409 for other errors, because the files of a run may change or vanish while a page shows them.
    return _problem(400 if isinstance(error, UsageError) else 409, str(error))


async def _invalid(request: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    places = (".".join(map(str, each["loc"][1:])) for each in problems)
    texts = [f"{place}: {each['msg']}" if place else each["msg"] for place, each in zip(places, problems, strict=True)]
    return _problem(400, f"{'; '.join(texts)}.")


async def _too_deep(request: Request, error: Exception) -> Response:
    return _problem(409, "A record is nested too deeply to be shown. Download its raw line instead.")


async def _bug(request: Request, error: Exception) -> Response:
    # Omit the traceback, because the server logs it.
    return _problem(500, f"The viewer failed ({type(error).__name__}: {error}). Its terminal has the details.")


def _problem(status: int, sentence: str) -> Response:
    return json_response({"detail": sentence}, status)
