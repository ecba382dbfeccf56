"""What is told of records that are let go: how much of what was in them, and of which steps.

Must not import torch or numpy. Invariant: counts add up over what is merged; steps widen to the range of both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from halfscope.wire.codec import decode_record
from halfscope.wire.errors import DecodeError
from halfscope.wire.messages import Points, Record, Sketches, Slices

FIRST_STEP, LAST_STEP = "first_step", "last_step"
"""Among the counts: not a number of anything, but where it was."""


def merged(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    """What is told of both together."""
    both = {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}
    for key, chosen in ((FIRST_STEP, min), (LAST_STEP, max)):
        known = [counts[key] for counts in (a, b) if key in counts]
        if known:
            both[key] = chosen(known)
    return both


def steps_of(record: Record) -> dict[str, int]:
    """Which steps a record is about; empty where it is about none."""
    if isinstance(record, Sketches | Slices):
        return {FIRST_STEP: record.step, LAST_STEP: record.step}
    if isinstance(record, Points) and len(record.steps) >= 8:
        (first,), (last,) = struct.unpack("<q", record.steps[:8]), struct.unpack("<q", record.steps[-8:])
        return {FIRST_STEP: first, LAST_STEP: last}
    return {}


def steps_of_payload(payload: bytes) -> dict[str, int]:
    """The same of an encoded record; empty where it cannot be read."""
    try:
        return steps_of(decode_record(payload))
    except DecodeError:
        return {}
