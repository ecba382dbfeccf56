"""A webhook: documented JSON to an address of one's own, signed.

The body is docs/alert-channels.md's; its version changes when a field goes or changes its meaning, not when one comes.
Invariant: what is signed is the time and the very bytes that are sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message, notice_id
from halfscope_server.alerts.posting import Outcome, place_of, post

VERSION = 1


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts JSON."""

    kind: ClassVar[str] = "webhook"
    title: ClassVar[str] = "Webhook"
    text: ClassVar[str] = "Posts JSON to an address of yours, signed with HMAC-SHA256."
    per_minute: ClassVar[float] = 60
    max_notices: ClassVar[int] = 50
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            name="url",
            is_place=True,
            title="Address",
            text="Where it is posted to. Kept as a secret, since such addresses often hold one.",
            placeholder="https://example.org/hooks/training",
            secret=True,
        ),
        Field(
            name="secret",
            title="Signing secret",
            text="Key of the signature in the header Halfscope-Signature; without one nothing is signed.",
            secret=True,
            required=False,
            pattern=r".{16,}",
            expected="at least 16 characters",
        ),
        Field(
            name="authorization",
            title="Authorization",
            text="Value of the header Authorization, for receivers that ask for one.",
            placeholder="Bearer …",
            secret=True,
            required=False,
            pattern=r"[\x20-\x7e]+",
            expected="ASCII characters",
        ),
    )

    def problems(self, values: Mapping[str, str]) -> dict[str, str]:
        """A web address, without user and password in it."""
        try:
            place_of(values["url"])
        except ValueError as error:
            return {"url": str(error)}
        return {}

    def send(self, values: Mapping[str, str], message: Message, reach: Reach) -> Outcome:
        """Post it; the same message has the same id whenever it is sent."""
        body = payload(message, sent_us=time.time_ns() // 1000)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "halfscope",
            "Idempotency-Key": message.id,
        }
        if values.get("secret"):
            headers["Halfscope-Signature"] = signature(values["secret"], body, timestamp_s=int(time.time()))
        if values.get("authorization"):
            headers["Authorization"] = values["authorization"]
        return post(place_of(values["url"]), body, headers, reach)


def payload(message: Message, *, sent_us: int) -> bytes:
    """What is posted."""
    alerts = [{"id": notice_id(notice), **notice.body} for notice in message.notices]
    content = {"version": VERSION, "id": message.id, "sent_us": sent_us, "test": message.is_test, "alerts": alerts}
    return json.dumps(content, allow_nan=False).encode()


def signature(secret: str, body: bytes, *, timestamp_s: int) -> str:
    """`t=SECONDS,v1=HEX`: HMAC-SHA256 over the seconds, a dot and the body."""
    signed = f"{timestamp_s}.".encode() + body
    return f"t={timestamp_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


CHANNEL = Webhook()
