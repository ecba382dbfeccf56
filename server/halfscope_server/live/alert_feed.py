"""Who is told of alerts: every page, whatever else it watches.

Owns its task on the hub's event loop; reading runs in the hub's threads. Must not import fastapi. Invariant: a viewer
is first given the present numbers, then every change; of several that it has not taken yet nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from halfscope_server.errors import Unavailable
from halfscope_server.live.alerts import KIND, merged
from halfscope_server.live.messages import Message

logger = logging.getLogger(__name__)


class Viewer(Protocol):
    """What is needed of a subscription."""

    def take(self, kind: str, message: Message, merge: Callable[[Message, Message], Message]) -> None:
        """Put a message where the viewer takes it; merged with one of its kind that still lies there."""


class AlertFeed:
    """All methods on the hub's event loop.

    Args:
        read: the newest message, and whether something in it is new; run one at a time, off the loop.
        interval_s: least time between two readings.
        poll_s: how often it is read without a hint.
    """

    def __init__(
        self, read: Callable[[], Awaitable[tuple[Message, bool]]], *, interval_s: float, poll_s: float
    ) -> None:
        self._read, self._interval_s, self._poll_s = read, interval_s, poll_s
        self._viewers: dict[Viewer, bool] = {}
        """And whether each has been given the present numbers."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.num_failures = 0

    def join(self, viewer: Viewer) -> None:
        """Tell a viewer, from the present numbers on; again for one that has missed some."""
        self._viewers[viewer] = False
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    def leave(self, viewer: Viewer) -> None:
        """Tell it no longer."""
        self._viewers.pop(viewer, None)

    def wake(self) -> None:
        """Something may have changed."""
        self._wake.set()

    async def close(self) -> None:
        """End, and wait for it."""
        self._viewers.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._poll_s)
            self._wake.clear()
            if self._viewers:
                await self._serve()
            await asyncio.sleep(self._interval_s)

    async def _serve(self) -> None:
        try:
            message, is_new = await self._read()
        except Unavailable:
            return  # Said elsewhere; it is read again in a moment.
        except Exception:
            self.num_failures += 1
            logger.exception("alerts could not be read for the pages; this is tried again")
            return
        for viewer, is_told in list(self._viewers.items()):
            if not is_told:
                viewer.take(KIND, {**message, "changed": []}, merged)
                self._viewers[viewer] = True
            elif is_new:
                viewer.take(KIND, message, merged)
