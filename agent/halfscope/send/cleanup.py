"""Removing the journals of runs that are over and safe on a server.

Must not import torch or numpy. Invariant: what is removed was acknowledged as a whole, or its run was deleted by the
user.
"""

from __future__ import annotations

import contextlib
from itertools import groupby
from pathlib import Path

from halfscope.record.acks import ServerAck, read_acks
from halfscope.record.layout import StreamPlace, find_streams, is_locked

KEEP_S = 86_400.0
"""A day in which a server that lost its data can still be given it again."""


def remove_shipped(directory: Path, *, older_than_s: float, wall_s: float) -> int:
    """Remove the segments of runs of which every stream has ended and is acknowledged for long enough.

    The streams' directories and their `ack.json` stay: they say how many attempts a run has had.

    Returns:
        How many segments were removed.
    """
    num_removed = 0
    for _, group in groupby(find_streams(directory), key=lambda place: place.run_id):
        places = list(group)
        if all(_is_over(place, wall_s - older_than_s) for place in places):
            for place in places:
                num_removed += _remove_segments(place)
    return num_removed


def _is_over(place: StreamPlace, before_s: float) -> bool:
    acks = list(read_acks(place.acks).servers.values())
    return any(_is_settled(ack, before_s) for ack in acks) and not is_locked(place.lock)


def _is_settled(ack: ServerAck, before_s: float) -> bool:
    return bool(ack.ended or ack.gone) and ack.updated_us / 1e6 <= before_s


def _remove_segments(place: StreamPlace) -> int:
    num_removed = 0
    for first_seq in place.segments():
        with contextlib.suppress(OSError):
            place.segment(first_seq).unlink()
            num_removed += 1
    return num_removed
