"""Kinds of channels: found by scanning this folder, a module with a `CHANNEL` is one.

Callers use `kinds`, `find`, `problems`, `asked_again` and `send`. Must not import the store's tables. Invariant: a new
kind is one new module here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from halfscope_server.alerts.channels.base import Channel, Field, check, scrub
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.alerts.posting import Outcome
from halfscope_server.store.types import ChannelRow

__all__ = ["Channel", "Field", "asked_again", "find", "kinds", "problems", "send"]


@cache
def kinds() -> tuple[Channel, ...]:
    """All kinds, by title."""
    found: list[Channel] = []
    for module in pkgutil.iter_modules(__path__):
        channel = getattr(importlib.import_module(f"{__name__}.{module.name}"), "CHANNEL", None)
        if channel is not None:
            found.append(channel)
    return tuple(sorted(found, key=lambda channel: channel.title.lower()))


def find(kind: str) -> Channel | None:
    """The kind of this name."""
    return next((channel for channel in kinds() if channel.kind == kind), None)


def problems(kind: str, options: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with a channel before it is kept, by field; empty: nothing. `secrets` as they would be kept.

    A value in the wrong half is a problem of its own: what is secret must not lie with what is shown.
    """
    channel = find(kind)
    if channel is None:
        return {"kind": f"there is no kind of channel {kind!r}; there are {', '.join(one.kind for one in kinds())}"}
    secret = {field.name for field in channel.fields if field.secret}
    misplaced = {name: "this is a secret and belongs with the secrets" for name in options if name in secret}
    misplaced |= {name: "this is no secret and belongs with the options" for name in secrets if name not in secret}
    known = {field.name for field in channel.fields}
    return check(channel, {**options, **secrets}) | {name: text for name, text in misplaced.items() if name in known}


def asked_again(row: ChannelRow, options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Secrets of a stored channel that must be given again before a change is kept, by field, with the reason.

    Args:
        row: the channel as it is kept.
        options: those it shall have.
        given: the secrets that were entered with the change.
    """
    channel = find(row.kind)
    if channel is None:
        return {}
    before, after = {**row.options, **row.secrets}, {**options, **row.secrets, **given}
    if all(after.get(field.name, "") == before.get(field.name, "") for field in channel.fields if field.is_place):
        return {}
    kept = [field for field in channel.fields if field.secret and not field.is_place and row.secrets.get(field.name)]
    why = "must be entered again: the server that it is sent to has changed"
    return {field.name: f"{field.title} {why}" for field in kept if not given.get(field.name)}


def send(row: ChannelRow, message: Message, reach: Reach) -> Outcome:
    """Send a message over a stored channel, once."""
    channel = find(row.kind)
    if channel is None:
        return Outcome(ok=False, text=f"this server knows no channels of kind {row.kind!r}", may_retry=False)
    values = {str(name): str(value) for name, value in {**row.options, **row.secrets}.items()}
    if wrong := check(channel, values):
        return Outcome(ok=False, text="; ".join(wrong.values()), may_retry=False)
    outcome = channel.send({field.name: "" for field in channel.fields} | values, message, reach)
    text = scrub(outcome.text, map(str, row.secrets.values()))
    return Outcome(
        ok=outcome.ok,
        text=text,
        may_retry=outcome.may_retry,
        retry_after_s=outcome.retry_after_s,
        is_size_or_form=outcome.is_size_or_form,
    )
