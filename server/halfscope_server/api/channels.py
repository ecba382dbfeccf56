"""Channels: where notifications go, what each kind asks for, and the test button.

Must not send but for the test. Invariant: a channel's secrets go in and never come out, neither in an answer nor in an
error.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path

from halfscope_server.alerts import channels
from halfscope_server.alerts.delivery import send_test
from halfscope_server.alerts.dialing import Reach
from halfscope_server.api.alert_models import (
    ChannelBody,
    ChannelField,
    ChannelItem,
    ChannelKind,
    ChannelList,
    TestResult,
)
from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.problems import NOT_FOUND, RESPONSES
from halfscope_server.api.services import Services, ServicesNow
from halfscope_server.errors import InvalidRequest, NotFound
from halfscope_server.store.types import ChannelRow

router = APIRouter(prefix="/api/v1/channels", tags=["alerts"], responses=RESPONSES)

ChannelId = Annotated[str, Path(max_length=64, description="Id of a channel")]
MAX_CHANNELS = 200


@router.get("")
def list_channels(services: ServicesNow) -> ChannelList:
    """Every channel, oldest first, and the kinds there are."""
    return ChannelList(
        channels=[_item(services, row) for row in services.store.alerts.channels()],
        kinds=[_kind(kind) for kind in channels.kinds()],
    )


@router.post("", status_code=201)
def add_channel(body: ChannelBody, services: ServicesNow) -> ChannelItem:
    """Make a channel; it is used from the next alert on."""
    if len(services.store.alerts.channels()) >= MAX_CHANNELS:
        raise InvalidRequest(f"{MAX_CHANNELS} channels are the most that are kept; delete some that are not needed")
    now_us = wall_clock_us()
    return _keep(services, body, secrets.token_hex(8), kept_secrets={}, created_us=now_us, now_us=now_us)


@router.put("/{channel}", responses=NOT_FOUND)
def change_channel(channel: ChannelId, body: ChannelBody, services: ServicesNow) -> ChannelItem:
    """Change a channel; secrets that are left out stay as they are."""
    row = _existing(services, channel)
    if body.kind != row.kind:
        raise InvalidRequest(f"the channel is of kind {row.kind}, not {body.kind}; make a new one for another kind")
    if wrong := channels.asked_again(row, _filled(body.options), _filled(body.secrets)):
        raise InvalidRequest("; ".join(wrong.values()))
    return _keep(services, body, channel, kept_secrets=row.secrets, created_us=row.created_us, now_us=wall_clock_us())


@router.delete("/{channel}", status_code=204, responses=NOT_FOUND)
def delete_channel(channel: ChannelId, services: ServicesNow) -> None:
    """Delete a channel with its secrets; what waits to be sent there is given up."""
    if not services.store.alerts.delete_channel(channel):
        raise _missing(channel)


@router.post("/{channel}/test", responses=NOT_FOUND)
def test_channel(channel: ChannelId, services: ServicesNow) -> TestResult:
    """Send a message that says it is a test, now."""
    row = _existing(services, channel)
    settings = services.settings
    reach = Reach.allowed(private=settings.alert_allow_private, networks=settings.alert_allow_networks)
    outcome = send_test(row, reach, base_url=settings.public_url.rstrip("/"))
    return TestResult(ok=outcome.ok, text=outcome.text, took_ms=outcome.took_ms)


def _existing(services: Services, channel: str) -> ChannelRow:
    row = next((row for row in services.store.alerts.channels() if row.channel_id == channel), None)
    if row is None:
        raise _missing(channel)
    return row


def _missing(channel: str) -> NotFound:
    return NotFound(f"there is no channel {channel} (now); GET /api/v1/channels lists those there are")


def _keep(
    services: Services,
    body: ChannelBody,
    channel: str,
    *,
    kept_secrets: Mapping[str, str],
    created_us: int,
    now_us: int,
) -> ChannelItem:
    options = _filled(body.options)
    # An empty secret is one that was left out: none can be shown again to be left as it is.
    given = _filled(body.secrets)
    row = ChannelRow(
        channel_id=channel,
        kind=body.kind,
        name=_name(body.name),
        enabled=body.enabled,
        options=options,
        secrets={**kept_secrets, **given},
        created_us=created_us,
        updated_us=now_us,
    )
    if wrong := channels.problems(row.kind, row.options, row.secrets):
        raise InvalidRequest("; ".join(f"{name}: {text}" for name, text in wrong.items()))
    services.store.alerts.put_channel(row)
    return _item(services, row)


def _name(name: str) -> str:
    if not name.strip():
        raise InvalidRequest("name holds only spaces; expected what the channel is called")
    if "\x00" in name:
        raise InvalidRequest("name holds a NUL character, which cannot be kept; take it out")
    return name.strip()


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value.strip() for name, value in values.items() if value.strip()}


def _item(services: Services, row: ChannelRow) -> ChannelItem:
    status = services.store.alerts.channel_status().get(row.channel_id)
    return ChannelItem(
        id=row.channel_id,
        kind=row.kind,
        name=row.name,
        enabled=row.enabled,
        options={name: str(value) for name, value in row.options.items()},
        secrets_set=sorted(name for name, value in row.secrets.items() if value),
        last_sent_us=status.last_sent_us if status else None,
        last_error=status.last_error if status else "",
        num_waiting=status.num_waiting if status else 0,
    )


def _kind(channel: channels.Channel) -> ChannelKind:
    return ChannelKind(
        kind=channel.kind,
        title=channel.title,
        text=channel.text,
        fields=[
            ChannelField(
                name=field.name,
                title=field.title,
                secret=field.secret,
                required=field.required,
                placeholder=field.placeholder,
                text=field.text,
            )
            for field in channel.fields
        ],
    )
