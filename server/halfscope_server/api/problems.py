"""Errors as `Problem` bodies: one shape for everything that is not a success.

Must not import routes or the store. Invariant: every body carries the request id that stands in the response's header
and in the server's log, and an unexpected error shows its class and nothing of its contents.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from halfscope_server.api.models import DeletedProblem, Problem
from halfscope_server.errors import RunDeleted, ServerError

_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "Not signed in"},
    422: {"model": Problem, "description": "An argument that cannot be used"},
}
"""What any protected route may answer besides its success, for the OpenAPI document."""

RUN_RESPONSES: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "No such run"},
    410: {"model": DeletedProblem, "description": "The run was deleted"},
}


NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There is none of this id"}}
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Somebody else has changed it, or made one of this id"}
}


def request_id(request: Request) -> str:
    """The id that the boundary gave this request."""
    found: str = request.scope.get("state", {}).get("request_id", "")
    return found


def respond(error: ServerError, *, request_id: str) -> JSONResponse:
    """The body and status of one of our own errors."""
    problem: Problem
    if isinstance(error, RunDeleted):
        problem = DeletedProblem(
            code=error.code,
            detail=str(error),
            request_id=request_id,
            run=error.run_id,
            name=error.name,
            deleted_us=error.deleted_us,
        )
    else:
        problem = Problem(code=error.code, detail=str(error), request_id=request_id)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return JSONResponse(problem.model_dump(), status_code=error.status, headers=headers)


def install(app: FastAPI) -> None:
    """Makes the app answer every error with a `Problem`."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ServerError)
        return respond(error, request_id=request_id(request))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, f"http_{error.status_code}")
        detail = (
            error.detail
            if error.status_code not in (404, 405)
            else f"{request.method} {request.url.path}: {error.detail}"
        )
        problem = Problem(code=code, detail=detail, request_id=request_id(request))
        return JSONResponse(problem.model_dump(), status_code=error.status_code, headers=error.headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # Only where and what, never the input itself: it may be a sign-in code.
        parts = ["{}: {}".format(".".join(str(at) for at in item["loc"]), item["msg"]) for item in error.errors()]
        problem = Problem(code="invalid", detail="; ".join(parts), request_id=request_id(request))
        return JSONResponse(problem.model_dump(), status_code=422)

    app.add_exception_handler(ServerError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
