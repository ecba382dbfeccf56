"""Microsoft Teams, by a workflow that a webhook starts."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="teams",
    title="Microsoft Teams",
    text='Posts through the workflow "Send webhook alerts to a channel".',
    fields=(
        Field(
            name="url",
            title="Workflow address",
            text="Shown when the workflow is made; the connectors of earlier years are gone.",
            placeholder="https://….logic.azure.com:443/workflows/…",
            secret=True,
            pattern=r"https://[A-Za-z0-9_.-]+\.(logic\.azure\.[a-z]+|(?:power|apps)platform(?:\.[A-Za-z0-9-]+){1,3})"
            r"(:[0-9]+)?/(powerautomate/automations/direct/(cu/[0-9]+/)?)?workflows/[A-Za-z0-9_-]+/triggers/manual/paths/invoke/?\?\S+",
            expected="the whole address of a workflow, with everything behind its question mark",
        ),
    ),
    address=lambda values: values["url"],
)
