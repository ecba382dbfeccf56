"""Who may ask: single-use sign-in codes, browser sessions and bearer tokens.

Must not import the routes or read the clock by itself. Invariant: no secret is kept, neither in memory nor in the
store, only its SHA-256 (they are 256 random bits, so a slow hash would add nothing), and a code is taken at most once
even by two requests at once.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from halfscope_server.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from halfscope_server.store.types import TokenRow

OWN_TOKENS = ("local", "environment")
"""Names of the tokens that a server takes in by itself at each start: this machine's, and that of HALFSCOPE_TOKEN."""


class CredentialStore(Protocol):
    """What is asked of the store: rows keyed by the hash of a secret."""

    def put_token(self, token_hash: str, *, name: str, created_us: int) -> None: ...

    def find_token(self, token_hash: str) -> str | None: ...

    def list_tokens(self) -> Sequence[TokenRow]: ...

    def revoke_token(self, token_hash: str) -> bool: ...

    def put_session(self, session_hash: str, *, created_us: int, expires_us: int) -> None: ...

    def find_session(self, session_hash: str) -> int | None: ...

    def delete_session(self, session_hash: str) -> bool: ...


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _code_digest(code: str) -> str:
    """Of its own kind, so that a code presented as a cookie opens nothing."""
    return digest(f"code {code}")


def new_secret() -> str:
    """256 random bits as 43 URL-safe characters."""
    return secrets.token_urlsafe(32)


class Authenticator:
    """Issues and checks credentials against one store.

    Args:
        store: where sessions and tokens are kept, hashed.
        code_s: how long a sign-in code is good.
        session_s: how long a browser stays signed in.
        clock_us: wall clock; tests pass their own.
    """

    def __init__(
        self, store: CredentialStore, *, code_s: int, session_s: int, clock_us: Callable[[], int] = wall_clock_us
    ) -> None:
        self._store = store
        self._code_us = code_s * 1_000_000
        self._session_us = session_s * 1_000_000
        self._clock_us = clock_us

    def issue_code(self) -> tuple[str, int]:
        """A new sign-in code and when it expires (microseconds since the epoch).

        It is kept like a session, so that any replica of the server takes it.
        """
        code, now_us = new_secret(), self._clock_us()
        self._store.put_session(_code_digest(code), created_us=now_us, expires_us=now_us + self._code_us)
        return code, now_us + self._code_us

    def redeem_code(self, code: str) -> tuple[str, int] | None:
        """Trades a code for a session.

        Returns:
            (the session's secret, when it expires), or None: never issued, used before, or too old.
        """
        now_us, key = self._clock_us(), _code_digest(code)
        expires_us = self._store.find_session(key)
        # The delete decides: of two requests with one code, it succeeds for one.
        if expires_us is None or not self._store.delete_session(key) or expires_us <= now_us:
            return None
        secret, until_us = new_secret(), now_us + self._session_us
        self._store.put_session(digest(secret), created_us=now_us, expires_us=until_us)
        return secret, until_us

    def session_expiry(self, secret: str) -> int | None:
        """When this browser's session ends, or None: unknown or over."""
        expires_us = self._store.find_session(digest(secret))
        return expires_us if expires_us is not None and expires_us > self._clock_us() else None

    def end_session(self, secret: str) -> None:
        """Signs a browser out; unknown secrets are fine."""
        self._store.delete_session(digest(secret))

    def admit_token(self, token: str, *, name: str) -> None:
        """Makes a bearer token good from now on; one that is good already stays so."""
        self._store.put_token(digest(token), name=name, created_us=self._clock_us())

    def is_token(self, token: str) -> bool:
        """Whether a bearer token was given out and not revoked."""
        return self.token_name(token) is not None

    def token_name(self, token: str) -> str | None:
        """The name a bearer token was given out under, or None: never given out, or revoked."""
        return self._store.find_token(digest(token))


def create_token(store: CredentialStore, name: str, *, now_us: int) -> str:
    """A new bearer token, told this once.

    Raises:
        InvalidRequest: the name is empty, too long, not printable, or in use.
    """
    if not name.strip() or name != name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidRequest(
            f"{name!r} is no name for a token; expected up to 200 printable characters that say who will have it"
        )
    if name in OWN_TOKENS:
        raise InvalidRequest(f"{name!r} names a token that the server takes in by itself; choose another name")
    if any(row.name == name for row in store.list_tokens()):
        raise InvalidRequest(f"there is a token called {name!r} already; choose another name, or revoke that one first")
    token = new_secret()
    store.put_token(digest(token), name=name, created_us=now_us)
    return token


def revoke_tokens(store: CredentialStore, name: str) -> int:
    """Lets nobody in with any token of a name from now on; returns how many they were. What is connected already stays
    so until it ends.

    Raises:
        NotFound: there is none of this name.
    """
    num_revoked = sum(store.revoke_token(row.token_hash) for row in store.list_tokens() if row.name == name)
    if not num_revoked:
        raise NotFound(f"there is no token called {name!r}; `halfscope token list` names those there are")
    return num_revoked
