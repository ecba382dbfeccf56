"""Errors of the wire, from the general to the particular.

WireError
├── DecodeError        bytes that are no message of this protocol
├── LimitError         a declared size above the limit; nothing was decoded
└── SequenceError      a frame the other side may not send now
"""

from __future__ import annotations


class WireError(Exception):
    """Something on the wire is not as agreed."""


class DecodeError(WireError):
    """Bytes that are no message of this protocol."""


class LimitError(WireError):
    """A declared size above the limit; nothing was decoded."""


class SequenceError(WireError):
    """A frame that the other side may not send now."""
