"""Signing in and out: a link's code for a cookie, and new links for whoever is already in.

Must not import the store. Invariant: `POST /api/v1/session` is the only route of the API that answers somebody unknown,
and all it answers is whether the code was good.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from halfscope_server.api.guard import cookie_name, session_cookie
from halfscope_server.api.models import SignedIn, SignIn, SignInLink
from halfscope_server.api.problems import RESPONSES
from halfscope_server.api.services import ServicesNow
from halfscope_server.errors import Unauthorized

router = APIRouter(prefix="/api/v1/session", tags=["session"], responses=RESPONSES)


@router.post("")
def sign_in(body: SignIn, request: Request, response: Response, services: ServicesNow) -> SignedIn:
    """Exchange the code of a sign-in link for a session cookie."""
    opened = services.authenticator.redeem_code(body.code)
    if opened is None:
        raise Unauthorized(
            "this sign-in link was used already or is older than ten minutes; get a new one with: halfscope open"
        )
    secret, expires_us = opened
    response.set_cookie(
        cookie_name(request.scope),
        secret,
        max_age=services.settings.session_s,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return SignedIn(expires_us=expires_us)


@router.get("")
def current_session(request: Request, services: ServicesNow) -> SignedIn:
    """Until when this browser is signed in; a bearer token has no end and answers 0."""
    secret = session_cookie(request.scope)
    expires_us = services.authenticator.session_expiry(secret) if secret else None
    return SignedIn(expires_us=expires_us or 0)


@router.delete("", status_code=204)
def sign_out(request: Request, response: Response, services: ServicesNow) -> None:
    """End this browser's session."""
    secret = session_cookie(request.scope)
    if secret:
        services.authenticator.end_session(secret)
    response.delete_cookie(cookie_name(request.scope), path=request.scope.get("root_path") or "/")


@router.post("/links")
def create_sign_in_link(request: Request, services: ServicesNow) -> SignInLink:
    """A new single-use sign-in link."""
    code, expires_us = services.authenticator.issue_code()
    base = services.settings.public_url or str(request.base_url)
    return SignInLink(url=f"{base.rstrip('/')}/#code={code}", code=code, expires_us=expires_us)
