"""What can go wrong at the server's border, each with the status and code that the client sees.

    ServerError               500 internal
    ├── InvalidRequest        422 invalid          an argument that cannot be used
    ├── Unauthorized          401 unauthorized     nobody signed in, or a token nobody gave out
    ├── Forbidden             403 forbidden        a foreign origin, or a host name that is not ours
    ├── NotFound              404 not_found
    ├── RunDeleted            410 run_deleted      with the name it had and when it went
    ├── Conflict              409 conflict         changed by somebody else meanwhile
    ├── TooLarge              413 too_large
    └── Unavailable           503 unavailable      the database cannot be reached, or the writer is gone

Must not import anything of the server, nor fastapi: any layer may raise these and only the api turns them into bodies.
Invariant: the text of an error says what was seen, what was expected and what to do, and never holds a secret.
"""

from __future__ import annotations

from typing import ClassVar


class ServerError(Exception):
    """Base of what the api answers with a `Problem`."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"


class InvalidRequest(ServerError):
    """An argument that cannot be used."""

    status = 422
    code = "invalid"


class Unauthorized(ServerError):
    """Nobody signed in, or a token nobody gave out."""

    status = 401
    code = "unauthorized"


class Forbidden(ServerError):
    """A foreign origin, or a host name that is not ours."""

    status = 403
    code = "forbidden"


class NotFound(ServerError):
    """No such run, panel or path."""

    status = 404
    code = "not_found"


class RunDeleted(ServerError):
    """The run was here and somebody deleted it."""

    status = 410
    code = "run_deleted"

    def __init__(self, run_id: str, name: str, deleted_us: int) -> None:
        super().__init__(
            f'run {run_id} ("{name}") was deleted; its data is gone and its agent has been told to stop sending'
        )
        self.run_id = run_id
        self.name = name
        self.deleted_us = deleted_us


class Conflict(ServerError):
    """Somebody else has changed it since it was read."""

    status = 409
    code = "conflict"


class TooLarge(ServerError):
    """A request body above its limit."""

    status = 413
    code = "too_large"


class Unavailable(ServerError):
    """The database cannot be reached, or the writer is gone."""

    status = 503
    code = "unavailable"
