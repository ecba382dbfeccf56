"""ntfy, on ntfy.sh or a server of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel


def _address(values: Mapping[str, str]) -> str:
    scheme, _, host = (values["server"] or "https://ntfy.sh").rstrip("/").partition("://")
    token = f"{quote(values['token'], safe='')}@" if values["token"] else ""
    schema = "ntfys" if scheme == "https" else "ntfy"
    return f"{schema}://{token}{host}/{values['topic']}?mode=private&image=no"


CHANNEL = AppriseChannel(
    kind="ntfy",
    title="ntfy",
    text="Push notifications on a telephone, by a topic.",
    fields=(
        Field(
            name="topic",
            title="Topic",
            text="On ntfy.sh whoever knows it can read it.",
            secret=True,
            pattern=r"[A-Za-z0-9_-]{1,64}",
            expected="up to 64 letters, digits, _ and -",
        ),
        Field(
            name="server",
            is_place=True,
            title="Server",
            text="Empty: ntfy.sh.",
            placeholder="https://ntfy.sh",
            required=False,
            pattern=r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?",
            expected="https:// and a host, without a path",
        ),
        Field(
            name="token",
            title="Access token",
            text="For topics that are protected.",
            placeholder="tk_…",
            secret=True,
            required=False,
            pattern=r"[A-Za-z0-9_-]+",
            expected="letters, digits, _ and -",
        ),
    ),
    address=_address,
    per_minute=30,
)
