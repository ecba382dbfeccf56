"""Bearer tokens: making, listing and revoking them, for `halfscope token`.

Not in the OpenAPI document: the web client has no use for it. Must not import the store. Invariant: only a token that
the server took in by itself (this machine's, or that of HALFSCOPE_TOKEN) opens these routes, so a token that was given
away can be revoked for good: its owner cannot have made others.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field

from halfscope_server.api.auth import OWN_TOKENS, create_token, revoke_tokens, wall_clock_us
from halfscope_server.api.guard import bearer_token
from halfscope_server.api.models import Model
from halfscope_server.api.problems import RESPONSES
from halfscope_server.api.services import ServicesNow
from halfscope_server.errors import Forbidden


class NewToken(Model):
    """A token to make."""

    name: Annotated[str, Field(max_length=1000)]
    """Who will have it."""


class MadeToken(Model):
    """A token, told this once: of the token itself only a hash is kept."""

    name: str
    token: str


class KnownToken(Model):
    """A token that was given out and not revoked."""

    name: str
    created_us: int


class KnownTokens(Model):
    """All of them, oldest first."""

    tokens: list[KnownToken]


class Revoked(Model):
    """How many tokens had the name."""

    revoked: int


def own_token_only(request: Request, services: ServicesNow) -> None:
    """Refuses whoever does not hold one of the server's own tokens.

    Raises:
        Forbidden: a browser's session, or a token that was given out.
    """
    token = bearer_token(request)
    if token is None or services.authenticator.token_name(token) not in OWN_TOKENS:
        raise Forbidden(
            "tokens are made, listed and revoked only with the server's own token; run `halfscope token` on the "
            "machine of the server, or with the HALFSCOPE_TOKEN that it was started with"
        )


router = APIRouter(
    prefix="/api/v1/tokens",
    tags=["tokens"],
    responses=RESPONSES,
    dependencies=[Depends(own_token_only)],
    include_in_schema=False,
)


@router.post("")
def make_token(body: NewToken, services: ServicesNow) -> MadeToken:
    """Make a token."""
    return MadeToken(name=body.name, token=create_token(services.store, body.name, now_us=wall_clock_us()))


@router.get("")
def list_tokens(services: ServicesNow) -> KnownTokens:
    """Names of the tokens there are."""
    rows = services.store.list_tokens()
    return KnownTokens(tokens=[KnownToken(name=row.name, created_us=row.created_us) for row in rows])


@router.delete("/{name:path}")
def revoke_token(name: Annotated[str, Path()], services: ServicesNow) -> Revoked:
    """Revoke all tokens of a name."""
    return Revoked(revoked=revoke_tokens(services.store, name))
