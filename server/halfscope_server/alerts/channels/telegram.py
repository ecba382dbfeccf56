"""Telegram, by a bot."""

from __future__ import annotations

from halfscope_server.alerts.channels.base import Field
from halfscope_server.alerts.channels.through_apprise import AppriseChannel

CHANNEL = AppriseChannel(
    kind="telegram",
    title="Telegram",
    text="A bot writes into a chat that it is a member of.",
    fields=(
        Field(
            name="token",
            title="Bot token",
            text="From @BotFather.",
            placeholder="123456789:AA…",
            secret=True,
            pattern=r"[0-9]+:[A-Za-z0-9_-]+",
            expected="a number, a colon and a token",
        ),
        Field(
            name="chat",
            title="Chat",
            text="Number of the chat; those of groups begin with a minus sign.",
            placeholder="-1001234567890",
            pattern=r"-?[0-9]{1,32}",
            expected="a number",
        ),
    ),
    address=lambda values: f"tgram://{values['token']}/{values['chat']}/?image=no&preview=no",
)
