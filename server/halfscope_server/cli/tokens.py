"""`halfscope token`: makes, lists and revokes bearer tokens, through the running server or straight in a database.

Must not import the app. Invariant: a token is shown once, when it is made; no database is made or migrated here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from halfscope_server.api.auth import create_token, revoke_tokens, wall_clock_us
from halfscope_server.cli import client
from halfscope_server.errors import Unavailable
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store

_ROUTE = "/api/v1/tokens"

Listed = Mapping[str, Any]


def create(settings: Settings, name: str, *, server: str = "", direct: bool = False) -> str:
    """A new token.

    Args:
        server: address to ask instead of the one found.
        direct: work in the database of the settings, without any server.
    """
    if direct:
        with _writing(settings) as store:
            return create_token(store, name, now_us=wall_clock_us())
    made = client.get_json(client.find(settings, server), _ROUTE, method="POST", body={"name": name})
    return str(made["token"])


def list_tokens(settings: Settings, *, server: str = "", direct: bool = False) -> list[Listed]:
    """Name and time of making of each, oldest first."""
    if direct:
        with _reading(settings) as store:
            found = [(row.name, row.created_us) for row in store.list_tokens()]
    else:
        answer = client.get_json(client.find(settings, server), _ROUTE)
        found = [(row["name"], row["created_us"]) for row in answer["tokens"]]
    return [{"name": name, "created": _time(created_us)} for name, created_us in found]


def revoke(settings: Settings, name: str, *, server: str = "", direct: bool = False) -> int:
    """Revokes all tokens of a name; returns how many."""
    if direct:
        with _writing(settings) as store:
            return revoke_tokens(store, name)
    answer = client.get_json(client.find(settings, server), f"{_ROUTE}/{quote(name, safe='')}", method="DELETE")
    return int(answer["revoked"])


def as_json(tokens: Sequence[Listed]) -> str:
    """A JSON list."""
    return json.dumps(list(tokens), indent=2, ensure_ascii=False)


def as_table(tokens: Sequence[Listed]) -> str:
    """A table for people."""
    if not tokens:
        return "No tokens. Make one: halfscope token create NAME"
    width = max(len("name"), *(len(each["name"]) for each in tokens))
    return "\n".join(f"{name:<{width}}  {created}" for name, created in [("name", "created"), *_cells(tokens)])


def _cells(tokens: Sequence[Listed]) -> Iterator[tuple[str, str]]:
    for each in tokens:
        yield each["name"], each["created"]


def _time(created_us: int) -> str:
    return datetime.fromtimestamp(created_us // 1_000_000, UTC).isoformat().replace("+00:00", "Z")


@contextmanager
def _writing(settings: Settings) -> Iterator[Store]:
    # First to read only: that refuses a database that is not there or of another version, where opening it to write
    # would make one.
    with _reading(settings):
        pass
    try:
        store = Store.open(settings.database)
    except Unavailable as error:
        raise Unavailable(f"{error}; or ask the server that has it: leave --database-url away") from error
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _reading(settings: Settings) -> Iterator[Store]:
    store = Store.open(settings.database, read_only=True)
    try:
        yield store
    finally:
        store.close()
