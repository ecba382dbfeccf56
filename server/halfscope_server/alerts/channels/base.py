"""What a kind of channel is.

Must not import any kind. Invariant: a kind says by itself what it asks for, so pages, validation and storage of secrets
know no kind by name; whether and when to try again is decided outside, from the `Outcome`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message, one_line
from halfscope_server.alerts.posting import Outcome

MAX_VALUE_CHARS = 2000
MIN_SECRET_CHARS = 4
"""Shorter values are not looked for in error texts: they would be found in any."""
MIN_PART_CHARS = 6
"""Of an address; `hook` or `send` are no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing that a kind of channel asks for."""

    name: str
    title: str
    text: str = ""
    """What it is and where to find it."""
    placeholder: str = ""
    secret: bool = False
    """Kept apart, never shown again."""
    required: bool = True
    is_place: bool = False
    """Says which server is spoken to. When it changes, the other secrets are asked for again: whoever may change a
    channel must not be able to have them sent to a server of his own."""
    pattern: str = ""
    """What it must match, whole; empty: anything."""
    expected: str = ""
    """The pattern in words."""


class Channel(Protocol):
    """A kind of channel."""

    @property
    def kind(self) -> str:
        """Stays; stored channels refer to it."""

    @property
    def title(self) -> str: ...

    @property
    def text(self) -> str:
        """One sentence for the page."""

    @property
    def fields(self) -> tuple[Field, ...]: ...

    @property
    def per_minute(self) -> float:
        """Messages the receiver takes in the long run; a burst is put together instead."""

    @property
    def max_notices(self) -> int:
        """Notifications that may go into one message."""

    def problems(self, values: Mapping[str, str]) -> dict[str, str]:
        """What is wrong beyond each field's pattern, by field; called when those are met."""

    def send(self, values: Mapping[str, str], message: Message, reach: Reach) -> Outcome:
        """Send a message once; blocks for at most `reach.send_s`, a name look-up and the start of a process.

        Args:
            values: one for every field, empty where there is none; `check` found nothing wrong.
            message: what to say.
            reach: what may be connected to, and for how long.
        """


def check(channel: Channel, values: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the values of a channel, by field; empty: nothing. No text repeats a value."""
    known = {field.name: field for field in channel.fields}
    expected = " or ".join(known)
    found = {name: f"{channel.title} has no such field; expected {expected}" for name in values if name not in known}
    for name, field in known.items():
        value = values.get(name, "")
        if not value:
            if field.required:
                found[name] = f"{field.title} is missing"
        elif len(value) > MAX_VALUE_CHARS:
            found[name] = f"{field.title} has {len(value)} characters; at most {MAX_VALUE_CHARS} are taken"
        elif any(ord(char) < 32 or ord(char) == 127 for char in value):
            found[name] = f"{field.title} holds line breaks or control characters"
        elif field.pattern and not re.fullmatch(field.pattern, value):
            found[name] = f"{field.title} is not what was expected: {field.expected or field.text}"
    return found or channel.problems({name: values.get(name, "") for name in known})


def scrub(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets, nor the parts of addresses that may be some; of a web address the host stays."""
    whole = [secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS]
    parts = {part for secret in whole for part in _parts(secret) if len(part) >= MIN_PART_CHARS}
    for part in sorted(parts.union(whole), key=len, reverse=True):
        text = text.replace(part, "…")
    return one_line(text)


def _parts(secret: str) -> list[str]:
    web = re.match(r"https?://(?:[^/?@]*@)?[^/?]*", secret)
    rest = secret[web.end() :] if web else secret.partition("://")[2]
    return re.split(r"[/?&=:@]", rest)
