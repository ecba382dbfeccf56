"""Shipping what lies in a directory, once: `halfscope sync`, a server that picks up journals, and the end of a run.

Must not import torch or numpy. Invariant: what a live sender ships is left to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from halfscope.record.layout import StreamPlace
from halfscope.send.endpoint import resolve
from halfscope.send.ship import Shipper
from halfscope.wire.messages import StreamInfo

UNREACHABLE_S = 10.0
"""How long a server that does not answer is tried before `sync` gives up."""
PROGRESS_INTERVAL_S = 0.2


class SyncError(Exception):
    """The journals could not be shipped; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProgress:
    """How far a sync is; the last one is its result."""

    num_streams: int
    """Found, and not shipped by somebody else."""
    num_shipped: int
    """All of what they hold is acknowledged, now or before."""
    num_records: int
    """Records sent by this call."""
    num_busy: int
    """Left to a live sender."""
    num_gone: int
    """Their run was deleted on the server."""
    url: str


def sync(
    directory: Path,
    server: str | None = None,
    token: str | None = None,
    progress: Callable[[SyncProgress], None] | None = None,
    *,
    only: StreamPlace | None = None,
    include_offline: bool = True,
    is_patient: bool = False,
    timeout_s: float | None = None,
) -> SyncProgress:
    """Ship all journals of a directory and wait until the server has committed them.

    Args:
        directory: a `HALFSCOPE_DIR`.
        server: where to; by default where this machine's agents send.
        token: what to show there; by default what this machine's agents show.
        progress: called now and then, and at the end.
        only: ship this stream and no other.
        include_offline: also runs that asked for `mode="offline"`.
        is_patient: a server that is there and takes nothing (its disk is full) is asked until it does.
        timeout_s: stop after so long, whatever is left.

    Raises:
        SyncError: no such directory, nobody answers, or the server refuses.
        ValueError: the server's address is none.
    """
    if not directory.is_dir():
        raise SyncError(f"{directory} is no directory; give one that holds journals, such as ~/.halfscope/journals")

    resolve(server, token)  # an address that is none is told at once, not tried for a while

    def wants(place: StreamPlace, _info: StreamInfo) -> bool:
        return (only is None or place == only) and (include_offline or not place.offline_mark.exists())

    is_there = ("connected", "starting", *(["refused"] if is_patient else []))
    shipper = Shipper(directory, lambda: resolve(server, token), wants=wants, follow=False)
    began_s = heard_s = told_s = time.monotonic()
    try:
        while not shipper.is_idle:
            shipper.turn()
            now_s = time.monotonic()
            if shipper.health.state in is_there:
                heard_s = now_s
            elif shipper.health.state == "unauthorized" or now_s - heard_s > UNREACHABLE_S:
                raise SyncError(_explained(shipper))
            if timeout_s is not None and now_s - began_s > timeout_s:
                break
            if progress is not None and now_s - told_s > PROGRESS_INTERVAL_S:
                told_s = now_s
                progress(_progress(shipper))
        result = _progress(shipper)
    finally:
        shipper.close()
    if progress is not None:
        progress(result)
    return result


def _progress(shipper: Shipper) -> SyncProgress:
    tally = shipper.tally
    return SyncProgress(
        num_streams=shipper.num_outboxes + len(tally.shipped) + len(tally.gone),
        num_shipped=len(tally.shipped),
        num_records=tally.num_records,
        num_busy=len(tally.busy),
        num_gone=len(tally.gone),
        url=shipper.health.url,
    )


def _explained(shipper: Shipper) -> str:
    health = shipper.health
    if health.state == "unauthorized":
        return (
            f"{health.url} does not take the token ({health.message}); run `halfscope login {health.url}`, "
            "or set HALFSCOPE_TOKEN or HALFSCOPE_TOKEN_FILE"
        )
    if health.state == "refused":
        return f"{health.url} refuses the journals: {health.message}"
    return (
        f"no halfscope server answers at {health.url} ({health.message}); start one with `halfscope serve`, "
        "or name another with --server or HALFSCOPE_SERVER"
    )
