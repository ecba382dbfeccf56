"""Errors of the journal.

JournalError
└── StreamBusyError    a second writer of one stream
"""

from __future__ import annotations


class JournalError(Exception):
    """A journal is not in a state to be used like that."""


class StreamBusyError(JournalError):
    """A second writer of one stream: a stream has exactly one."""
