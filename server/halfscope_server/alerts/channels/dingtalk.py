"""DingTalk, by a group's custom robot."""

from __future__ import annotations

from collections.abc import Mapping

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel


def _address(values: Mapping[str, str]) -> str:
    token = values["url"].rpartition("=")[2]
    return f"dingtalk://{values['secret']}@{token}/" if values["secret"] else f"dingtalk://{token}/"


CHANNEL = AppriseChannel(
    kind="dingtalk",
    title="DingTalk",
    text="A custom robot writes into its group.",
    fields=(
        Field(
            name="url",
            is_place=True,
            title="Webhook address",
            text="From the robot's page in the group's settings.",
            placeholder="https://oapi.dingtalk.com/robot/send?access_token=…",
            secret=True,
            pattern=r"https://oapi\.dingtalk\.com/robot/send\?access_token=[A-Za-z0-9]+",
            expected="https://oapi.dingtalk.com/robot/send?access_token= and a token",
        ),
        Field(
            name="secret",
            title="Signing secret",
            text="Where the robot's security setting is a signature. With keywords instead, take the word alert.",
            placeholder="SEC…",
            secret=True,
            required=False,
            pattern=r"[A-Za-z0-9]+",
            expected="letters and digits",
        ),
    ),
    address=_address,
)
