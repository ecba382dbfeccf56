"""WeCom (WeChat Work), by a group's robot."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="wecom",
    title="WeCom",
    text="A group's robot writes into its group.",
    fields=(
        Field(
            name="url",
            title="Webhook address",
            text="From the robot's page in the group's settings.",
            placeholder="https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
            secret=True,
            pattern=r"https://qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[A-Za-z0-9_-]+",
            expected="https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key= and a key",
        ),
    ),
    address=lambda values: f"wecombot://{values['url'].rpartition('=')[2]}",
)
