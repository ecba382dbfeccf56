"""The live hub: from commits to viewers.

Owns who watches what, when it is computed, and what each viewer has not been given yet. Computing runs in a few
threads; everything else on the event loop of the first subscriber. Must not import fastapi. Invariants: a viewer waits
for at most one message of each kind, the newest; a run is computed at most twice a second whatever comes in; and what
many viewers ask for is computed once, since a run's view remembers it.

How the API uses it:

    subscription = hub.subscribe()              # on the event loop, one per websocket
    try:
        subscription.watch(RunRequest(...))     # for each message of the client; None to watch nothing
        for message in await subscription.next():
            ...                                 # send; take the next only when this was sent
    finally:
        subscription.close()

and calls `hub.notify` after each group commit (any thread), `hub.changed(run_id)` after a rename, new tags or a
deletion (any thread), `hub.alerts_changed()` when an alert fires, is over or acknowledged (any thread), and `await
hub.close()` before the store is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from halfscope.wire.messages import Live

from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.errors import InvalidRequest, NotFound, RunDeleted, Unavailable
from halfscope_server.live.alert_feed import AlertFeed
from halfscope_server.live.alerts import KIND as ALERTS
from halfscope_server.live.alerts import AlertReader
from halfscope_server.live.backlog import Backlog
from halfscope_server.live.messages import (
    Message,
    compare_message,
    compared_panel_messages,
    deleted_message,
    error_message,
    failure,
    newest_words,
    panel_messages,
    ranks_message,
    run_message,
    runs_message,
)
from halfscope_server.live.requests import CompareRequest, Request, RunRequest, RunsRequest
from halfscope_server.query import RunView, Views, list_runs
from halfscope_server.query.summary import now_us
from halfscope_server.ranks.reports import Ranks
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
RUNS_INTERVAL_S = 1.0
POLL_S = 2.0
"""Covers a lost hint, and writes of other replicas."""
BUSY_SHARE = 0.25
"""Most of one processor's time that a single run may take: a run that is slow to compute is computed less often. One
that only waits for others' turns is not."""
STALL_S = 10.0
"""A viewer that took nothing for so long is not computed for; when it is back it gets the state of then."""
NUM_THREADS = 2
MAX_NEWEST = 1_024
"""Runs with a backlog at once of which the newest numbers are remembered."""
RUNS = ""
"""Key of the feed of the runs table; no run has an empty id."""


class Subscription:
    """One viewer. All methods on the hub's event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: dict[str, list[Message]] = {}
        """Not taken yet, by kind: the newest of each."""
        self._ready = asyncio.Event()
        self._sent_view: RunView | Comparison | None = None
        self._sent_run: Message | None = None
        self._newest = 0
        """Number of the newest computation that was delivered."""
        self._since_s = 0.0
        """When the oldest of what waits was put there."""
        self.request: Request | None = None
        self._hears_alerts = False
        self.is_stalled = False
        self.is_closed = False

    def watch(self, request: Request | None) -> None:
        """Replace what this viewer is told about; the present state follows at once."""
        self._forget()
        self.request = request
        self._hub._watched(self)

    def watch_alerts(self) -> None:
        """Be told of alerts too, whatever else is watched, from the present numbers on."""
        self._hears_alerts = True
        self._hub._alerts.join(self)

    async def next(self) -> list[Message]:
        """Wait for news and take all there are: at most one per kind, newest state; empty once closed."""
        if self.is_stalled:
            self.is_stalled = False
            self._forget()
            self._hub._watched(self)
            if self._hears_alerts:
                self._hub._alerts.join(self)
        while not self._waiting and not self.is_closed:
            self._ready.clear()
            await self._ready.wait()
        messages = [message for kind in self._waiting.values() for message in kind]
        self._waiting = {}
        return messages

    def close(self) -> None:
        """Stop watching."""
        self.is_closed, self.request = True, None
        self._ready.set()
        self._hub._closed(self)

    def take(self, kind: str, message: Message, merge: Callable[[Message, Message], Message]) -> None:
        """Be given a message that adds to one of its kind which was not taken yet."""
        waiting = self._waiting.get(kind)
        if not self.is_stalled:
            self._put(kind, [merge(waiting[0], message) if waiting else message], self._hub._clock_s())

    def _forget(self) -> None:
        # What was said of alerts depends on nothing that is watched.
        kept = self._waiting.get(ALERTS)
        self._waiting, self._sent_view, self._sent_run = {} if kept is None else {ALERTS: kept}, None, None

    def _put(self, kind: str, messages: list[Message], at_s: float) -> None:
        if not messages or self.is_closed:
            return
        if not self._waiting:
            self._since_s = at_s
        elif at_s - self._since_s > STALL_S:
            self.is_stalled = True
            self._waiting = {}
            return
        self._waiting[kind] = messages
        self._ready.set()


class _Feed:
    """What all viewers of one run, of some runs beside each other, or of the runs table share."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.woken_by = frozenset(key.split(","))
        """Runs whose news are its own; ids hold no comma."""
        self.viewers: set[Subscription] = set()
        self.wake = asyncio.Event()
        self.backlog = Backlog()
        self.task: asyncio.Task[None] | None = None

    @property
    def awake(self) -> list[Subscription]:
        """Viewers that take what they are given."""
        return [viewer for viewer in self.viewers if not viewer.is_stalled]


class Hub:
    """See the module."""

    def __init__(
        self,
        store: Store,
        views: Views | None = None,
        comparisons: Comparisons | None = None,
        ranks: Ranks | None = None,
        *,
        interval_s: float = INTERVAL_S,
        runs_interval_s: float = RUNS_INTERVAL_S,
        poll_s: float = POLL_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            store: read from only.
            views, comparisons, ranks: shared with the rest of the API, so that a page and its live updates are computed
                once.
            interval_s: least time between two messages about a run.
            runs_interval_s: likewise about the runs table.
            poll_s: how often watched runs are looked at without a hint.
        """
        self._store = store
        self._views = views or Views(store)
        self._comparisons = comparisons or Comparisons(self._views)
        self._ranks = ranks or Ranks(store)
        self._interval_s, self._runs_interval_s, self._poll_s = interval_s, runs_interval_s, poll_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._feeds: dict[str, _Feed] = {}
        self._subscriptions: set[Subscription] = set()
        self._serving: set[asyncio.Task[float]] = set()
        self._num_begun = 0
        self._failed = 0
        self._newest: OrderedDict[str, Live] = OrderedDict()
        """By run, what its agent has told beside a backlog."""
        self._reader: AlertReader | None = None
        self._alerts = AlertFeed(self._read_alerts, interval_s=runs_interval_s, poll_s=poll_s)

    # ---- any thread -------------------------------------------------------------------------

    def notify(self, applied: Iterable[Applied]) -> None:
        """A group commit brought something; called by the writer after COMMIT."""
        self._hint({one.run_id for one in applied})

    def live(self, frame: Live) -> None:
        """An agent that still sends a backlog tells how far the training is."""
        with self._lock:
            self._newest[frame.run_id] = frame
            self._newest.move_to_end(frame.run_id)
            if len(self._newest) > MAX_NEWEST:
                self._newest.popitem(last=False)
        self._hint({frame.run_id})

    def changed(self, run_id: str) -> None:
        """A run was renamed, tagged or deleted."""
        self._hint({run_id})

    def alerts_changed(self) -> None:
        """An alert fires, is over, or was acknowledged or silenced."""
        with self._lock:
            loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # As below.
                loop.call_soon_threadsafe(self._alerts.wake)

    @property
    def num_failures(self) -> int:
        """Computations that raised; each is in the log."""
        return self._failed + self._alerts.num_failures

    @property
    def num_clients(self) -> int:
        """Viewers connected now."""
        return len(self._subscriptions)

    def _hint(self, run_ids: set[str]) -> None:
        with self._lock:
            loop = self._loop
        if loop is None or not run_ids:
            return
        with contextlib.suppress(RuntimeError):  # The loop has closed: nobody is left to be told.
            loop.call_soon_threadsafe(self._wake, run_ids)

    # ---- event loop -------------------------------------------------------------------------

    def subscribe(self) -> Subscription:
        """A new viewer."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="halfscope-live")
        subscription = Subscription(self)
        self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        """End every subscription and wait for what is being computed."""
        for subscription in list(self._subscriptions):
            subscription.close()
        await self._alerts.close()
        tasks = [*self._serving, *(feed.task for feed in self._feeds.values() if feed.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._feeds.clear()
        with self._lock:
            self._loop = None
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)

    def _wake(self, run_ids: set[str]) -> None:
        for feed in self._feeds.values():
            if feed.key == RUNS or not feed.woken_by.isdisjoint(run_ids):
                feed.wake.set()

    def _closed(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        self._alerts.leave(subscription)
        self._leave(subscription)

    def _leave(self, subscription: Subscription) -> None:
        for key, feed in list(self._feeds.items()):
            feed.viewers.discard(subscription)
            if not feed.viewers:
                del self._feeds[key]
                if feed.task is not None:
                    feed.task.cancel()

    def _watched(self, subscription: Subscription) -> None:
        """A viewer has a new request: join its feed, and give it the present state without waiting for the feed's
        turn."""
        request = subscription.request
        key = _key(request)
        if subscription not in getattr(self._feeds.get(key), "viewers", ()):
            self._leave(subscription)
        if request is None:
            self._leave(subscription)
            return
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = _Feed(key)
            feed.task = asyncio.get_running_loop().create_task(self._follow(feed))
        feed.viewers.add(subscription)
        task = asyncio.get_running_loop().create_task(self._serve(feed, [subscription]))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _follow(self, feed: _Feed) -> None:
        """Serve a feed's viewers whenever there is news, and look for news when no hint came."""
        interval_s = self._runs_interval_s if feed.key == RUNS else self._interval_s
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(feed.wake.wait(), self._poll_s)
            feed.wake.clear()
            began_s = time.monotonic()
            cost_s = await self._serve(feed, feed.awake)
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(interval_s - took_s, cost_s * (1 / BUSY_SHARE - 1)))

    async def _serve(self, feed: _Feed, viewers: list[Subscription]) -> float:
        """Compute in a thread what these viewers have not got, and put it where they take it.

        Returns:
            Processor time that it took.
        """
        # Some may have moved on to another run since this was scheduled.
        asked = [(v, v.request) for v in viewers if v.request is not None and _key(v.request) == feed.key]
        if not asked or self._pool is None:
            return 0.0
        self._num_begun += 1
        number = self._num_begun
        # All of a feed's are of one kind: a key of several runs is that of a comparison.
        known = [(r, viewer._sent_view) for viewer, r in asked if isinstance(r, RunRequest)]
        compared = [(r, viewer._sent_view) for viewer, r in asked if isinstance(r, CompareRequest)]
        listed = [r for _, r in asked if isinstance(r, RunsRequest)]
        work = (
            partial(self._runs, listed)
            if listed
            else partial(self._run, feed, known)
            if known
            else partial(self._compare, compared)
        )
        cost_s = 0.0

        def timed() -> list[_Answer]:
            nonlocal cost_s
            began_s = time.thread_time()
            try:
                return work()
            finally:
                cost_s = time.thread_time() - began_s

        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._pool, timed)
        except Unavailable as error:
            answers = [_Answer(messages={"error": [error_message("unavailable", str(error))]}) for _ in asked]
        except Exception as error:  # noqa: BLE001  one failed tick must not end the feed
            self._failed += 1
            message = failure("live_failed", "the newest data could not be read; this is tried again", error)
            answers = [_Answer(messages={"error": [message]}) for _ in asked]
        at_s = self._clock_s()
        for (viewer, request), answer in zip(asked, answers, strict=True):
            # It may have moved on while this was computed; what it asks for now is on its way.
            # And of two computations the one begun later read the newer state, whichever is done first.
            if viewer.request is request and number > viewer._newest:
                viewer._newest = number
                _deliver(viewer, answer, at_s)
        return cost_s

    async def _read_alerts(self) -> tuple[Message, bool]:
        assert self._pool is not None, "pages are told of alerts only after one has subscribed"
        if self._reader is None:
            self._reader = AlertReader(self._store, now_us())
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._reader.read)

    # ---- threads ----------------------------------------------------------------------------

    def _runs(self, requests: list[RunsRequest]) -> list[_Answer]:
        by_bins = {r.strip_bins for r in requests}
        found = {
            bins: runs_message(list_runs(self._store, self._views, strip_bins=bins, at_us=now_us())) for bins in by_bins
        }
        return [_Answer(messages={"runs": [found[r.strip_bins]]}) for r in requests]

    def _run(self, feed: _Feed, known: list[tuple[RunRequest, RunView | Comparison | None]]) -> list[_Answer]:
        view = self._views.get(feed.key)
        if view is None:
            gone = self._store.deleted_run(feed.key)
            message = (
                deleted_message(feed.key, *gone)
                if gone is not None
                else error_message("not_found", f"there is no run {feed.key} here")
            )
            return [_last(message) for _ in known]
        at_us = now_us()
        newest_us = view.newest_time_us
        lag_s = (at_us - newest_us) / 1e6 if newest_us is not None and view.row.state == "live" else 0.0
        left_s = feed.backlog.observe(self._clock_s(), lag_s)
        ahead = self._ahead(view)
        answers = []
        # Viewers who look at the same get the same message, put together once.
        told = cache(lambda bins: run_message(view, bins, left_s, at_us, ahead))
        drawn = cache(partial(panel_messages, view))
        for request, sent in known:
            messages = {"run": [told(request.strip_bins)]}
            if sent is not view:
                messages["panels"] = drawn(request.panels, request.window)
                if request.ranks:
                    messages["ranks"] = [ranks_message(view.run_id, self._ranks.report(view))]
            answers.append(_Answer(messages=messages, view=view))
        return answers

    def _ahead(self, view: RunView) -> str | None:
        """Where the training is, in words, while what is stored is behind it."""
        with self._lock:
            frame = self._newest.get(view.run_id)
            if frame is not None and (view.row.state != "live" or frame.step <= (view.row.last_step or 0)):
                del self._newest[view.run_id]
                return None
        return None if frame is None else newest_words(view, frame, self._store.sids(frame.run_id, frame.stream))

    def _compare(self, known: list[tuple[CompareRequest, RunView | Comparison | None]]) -> list[_Answer]:
        answers = []
        for request, sent in known:
            try:
                comparison = self._comparisons.get(request.runs, request.options)
            except RunDeleted as gone:
                answers.append(_last(deleted_message(gone.run_id, gone.name, gone.deleted_us)))
                continue
            except (InvalidRequest, NotFound) as error:
                answers.append(_last(error_message(error.code, str(error))))
                continue
            messages = {}
            if sent is not comparison:
                messages["compare"] = [compare_message(comparison)]
                messages["panels"] = compared_panel_messages(comparison, request.panels, request.window)
            answers.append(_Answer(messages=messages, view=comparison))
        return answers


class _Answer:
    """What one viewer is given."""

    __slots__ = ("is_last", "messages", "view")

    def __init__(
        self,
        *,
        messages: dict[str, list[Message]],
        view: RunView | Comparison | None = None,
        is_last: bool = False,
    ) -> None:
        self.messages, self.view, self.is_last = messages, view, is_last


def _last(message: Message) -> _Answer:
    """What ends a viewer's request."""
    return _Answer(messages={message["type"]: [message]}, is_last=True)


def _key(request: Request | None) -> str:
    """The feed that a request belongs to."""
    if isinstance(request, CompareRequest):
        return ",".join(request.runs)
    return request.run if isinstance(request, RunRequest) else RUNS


def _deliver(viewer: Subscription, answer: _Answer, at_s: float) -> None:
    for kind, messages in answer.messages.items():
        if kind in ("run", "runs"):
            if viewer._sent_run == messages[0]:
                continue
            viewer._sent_run = messages[0]
        viewer._put(kind, messages, at_s)
    if answer.view is not None:
        viewer._sent_view = answer.view
    if answer.is_last:
        viewer.request = None
        viewer._hub._leave(viewer)
