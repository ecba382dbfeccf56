"""Any of the other services that Apprise knows, by its address there."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="apprise",
    title="Apprise address",
    text="Any other service that Apprise reaches over HTTP: Mattermost, Matrix, Opsgenie, Pushover and a hundred more.",
    fields=(
        Field(
            name="url",
            title="Address",
            text="As Apprise's pages spell it for the service.",
            placeholder="mmosts://example.org/…",
            secret=True,
            pattern=r"[a-z0-9]+://\S+",
            expected="a service, :// and what Apprise asks for there",
        ),
    ),
    address=lambda values: values["url"],
)
