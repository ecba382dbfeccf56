"""Feishu and Lark, by a group's custom bot."""

from __future__ import annotations

from collections.abc import Mapping

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel


def _address(values: Mapping[str, str]) -> str:
    host, _, token = values["url"].removeprefix("https://").rstrip("/").rpartition("/")
    return f"{'lark' if host.startswith('open.larksuite.com') else 'feishu'}://{token}"


CHANNEL = AppriseChannel(
    kind="feishu",
    title="Feishu / Lark",
    text="A custom bot writes into its group.",
    fields=(
        Field(
            name="url",
            title="Webhook address",
            text="From the bot's page in the group's settings. Its signature check must be off.",
            placeholder="https://open.feishu.cn/open-apis/bot/v2/hook/…",
            secret=True,
            pattern=r"https://open\.(feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/[A-Za-z0-9-]+/?",
            expected="https://open.feishu.cn or https://open.larksuite.com, /open-apis/bot/v2/hook/ and a token",
        ),
    ),
    address=_address,
)
