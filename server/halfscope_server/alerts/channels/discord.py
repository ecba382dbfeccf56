"""Discord, by a channel's webhook."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="discord",
    title="Discord",
    text="Posts into the channel of a webhook.",
    fields=(
        Field(
            name="url",
            title="Webhook address",
            text="From the channel's settings, Integrations, Webhooks.",
            placeholder="https://discord.com/api/webhooks/…/…",
            secret=True,
            pattern=r"https://discord(app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]+/?",
            expected="https://discord.com/api/webhooks/, a number and a token",
        ),
    ),
    address=lambda values: values["url"],
)
