"""What may be in a value that an agent sent, whichever record it came in.

Owns the limits that several kinds of records share. Must not import the other store modules. Invariant: what passes can
be kept by both databases and drawn: no NUL in text, numbers within what a float64 holds exactly.
"""

from __future__ import annotations

MAX_NAME_CHARS = 512
MAX_KIND_CHARS = 64
MAX_STEP = 1 << 53
"""Steps are drawn on an axis of float64."""
MAX_TIME_US = 1 << 56
"""Year 4253: keeps differences of times inside int64."""


class BadBatch(Exception):
    """A batch that cannot be taken; the text says why."""


def check_number(what: str, value: int, highest: int, *, lowest: int = 0) -> None:
    """Raises BadBatch where a number is out of its range."""
    if not lowest <= value <= highest:
        raise BadBatch(f"{what} is {value}; expected {lowest} to {highest}")


def check_kind(what: str, text: str, *, least_chars: int = 0) -> None:
    """Raises BadBatch where a short text is too long, or holds what PostgreSQL does not take."""
    if not least_chars <= len(text) <= MAX_KIND_CHARS or "\x00" in text:
        raise BadBatch(
            f"{what} of {len(text)} characters; expected {least_chars} to {MAX_KIND_CHARS}, none of them NUL"
        )
