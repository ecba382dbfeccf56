"""PagerDuty: an incident per alert, opened when it fires and resolved with it (Events API v2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message, one_line
from halfscope_server.alerts.posting import Outcome, place_of, post

HOSTS = {"us": "events.pagerduty.com", "eu": "events.eu.pagerduty.com"}
MAX_SUMMARY_CHARS = 1024


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """Not through Apprise: an incident is known by the episode, so it is resolved whatever its text has become."""

    kind: ClassVar[str] = "pagerduty"
    title: ClassVar[str] = "PagerDuty"
    text: ClassVar[str] = "Opens an incident when an alert fires and resolves it with the alert."
    per_minute: ClassVar[float] = 120
    max_notices: ClassVar[int] = 1
    """An event is about one incident."""
    fields: ClassVar[tuple[Field, ...]] = (
        Field(
            name="key",
            title="Integration key",
            text="Of a service's integration Events API v2.",
            secret=True,
            pattern=r"[A-Za-z0-9]{32}",
            expected="32 letters and digits",
        ),
        Field(
            name="region",
            title="Region",
            text="us or eu; empty: us.",
            placeholder="us",
            required=False,
            pattern="us|eu",
            expected="us or eu",
        ),
    )

    def problems(self, values: Mapping[str, str]) -> dict[str, str]:
        """Nothing beyond the patterns."""
        return {}

    def send(self, values: Mapping[str, str], message: Message, reach: Reach) -> Outcome:
        """Send an event."""
        place = place_of(f"https://{HOSTS[values['region'] or 'us']}/v2/enqueue")
        body = json.dumps(event(values["key"], message), allow_nan=False).encode()
        return post(place, body, {"Content-Type": "application/json", "User-Agent": "halfscope"}, reach)


def event(key: str, message: Message) -> dict[str, Any]:
    """As the Events API takes it."""
    notice = message.notices[0]
    about = {"routing_key": key, "dedup_key": f"halfscope:{notice.episode_id}"}
    if message.is_resolved:
        return {**about, "event_action": "resolve"}
    url = str(notice.body.get("url") or "")
    return {
        **about,
        "event_action": "trigger",
        "payload": {
            "summary": one_line(f"{message.title}: {notice.body.get('text', '')}", MAX_SUMMARY_CHARS),
            "source": one_line(str(notice.body.get("run", {}).get("name", "halfscope"))),
            "severity": message.severity,
            "custom_details": dict(notice.body),
        },
        "links": [{"href": url, "text": "Open in halfscope"}] if url else [],
    }


CHANNEL = PagerDuty()
