"""Slack, by an incoming webhook."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="slack",
    title="Slack",
    text="Posts into the channel of an incoming webhook.",
    fields=(
        Field(
            name="url",
            title="Webhook address",
            text="From the app's page Incoming Webhooks.",
            placeholder="https://hooks.slack.com/services/T…/B…/…",
            secret=True,
            pattern=r"https://hooks\.slack(-gov)?\.com/services/[A-Za-z0-9]+/[A-Za-z0-9]+/[A-Za-z0-9]+/?",
            expected="https://hooks.slack.com/services/ and three parts",
        ),
    ),
    address=lambda values: values["url"],
)
