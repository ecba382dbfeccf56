"""Sending what the outbox holds: a thread that claims what is due, one more for each channel that is being sent to.

Must not decide whether something is sent: that was decided when it was put into the outbox. Invariants: a notification
is settled once for each time it was claimed, and one whose sender died is claimed again when its lease is over, so it
is sent once, or twice where a crash came between sending and settling; a channel that is slow, down or has had enough
holds up no other; nothing here raises into the server.

Times are the server's wall clock, in microseconds, as in the outbox.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from halfscope_server.alerts import channels
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message, body_of
from halfscope_server.alerts.posting import Outcome
from halfscope_server.query.summary import now_us as wall_clock_us
from halfscope_server.store.types import ChannelRow, EpisodeRow, NoticeRow

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Finds what another process put into the outbox, and what is due again."""
CLAIM = 50
"""At most so many at once, over all channels."""
LEASE_S = 240.0
BUDGET_S = 120.0
"""After so long no further message of a claim is begun: the lease must outlast the last one."""
MAX_BUSY = 8
"""Channels sent to at the same time."""
BURST = 3
"""Messages a quiet channel takes at once."""
MIN_RETRY_S = 10.0
MAX_RETRY_S = 900.0
GIVE_UP_S = 86_400.0
"""A notification that could not be sent for a day is given up."""
MAX_HOLD_S = 60.0
"""After a failure, how long at most something new waits for the next try of its channel."""
STOP_S = 3.0
"""What is being sent when the server stops gets so long to end; its lease runs out otherwise."""


class Outbox(Protocol):
    """What delivery needs of `Store.alerts`."""

    def channels(self) -> list[ChannelRow]: ...

    def claim_notices(
        self, *, now_us: int, limit: int, lease_s: float, except_channels: Collection[str] = ()
    ) -> list[NoticeRow]: ...

    def settle_notice(
        self,
        claimed: NoticeRow,
        *,
        state: Literal["waiting", "sent", "failed"],
        now_us: int,
        error: str = "",
        due_us: int | None = None,
    ) -> bool: ...


@dataclass(slots=True, kw_only=True)
class _Pace:
    """When a channel may be sent to again."""

    tokens: float = BURST
    """Messages that may be sent at once; below 0 after several in a row."""
    seen_us: int = 0
    held_until_us: int = 0
    """After a failure."""

    def is_held(self, now_us: int, per_minute: float) -> bool:
        passed_us = max(0, now_us - self.seen_us)
        self.tokens = min(BURST, self.tokens + passed_us / 60e6 * per_minute)
        self.seen_us = now_us
        return self.tokens < 1 or now_us < self.held_until_us


class Delivery:
    """Sends what the outbox holds.

    Args:
        outbox: `Store.alerts`.
        reach: what channels may connect to.
        send: sends one message, once; `channels.send`, or what stands for it in a test.
        now_us: the wall clock.
        jitter: 0..1, so that servers do not try again all at once.
    """

    def __init__(
        self,
        outbox: Outbox,
        reach: Reach,
        *,
        send: Callable[[ChannelRow, Message, Reach], Outcome] = channels.send,
        now_us: Callable[[], int] = wall_clock_us,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._outbox, self._reach, self._send = outbox, reach, send
        self._now_us, self._jitter = now_us, jitter
        self._changed = threading.Condition()
        self._is_poked = False
        self._stopping = False
        self._busy: set[str] = set()
        self._paces: dict[str, _Pace] = {}
        self._per_minute: dict[str, float] = {}
        self._thread = threading.Thread(target=self._work, name="halfscope-deliver", daemon=True)
        self.num_sent = 0
        """Notifications; likewise num_failed (given up) and num_retries (put off)."""
        self.num_failed = 0
        self.num_retries = 0
        self.num_errors = 0
        """Failures of our own; each is in the log."""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more; waits a little for what is being sent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self.wait_idle(STOP_S)

    def wait_idle(self, timeout_s: float) -> bool:
        """Until nothing is being sent; False: something still is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout_s)

    def poke(self) -> None:
        """Say that something was put into the outbox. Returns at once, from any thread."""
        with self._changed:
            self._is_poked = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            try:
                is_more = self.round()
            except Exception as error:  # noqa: BLE001  (a thread's task; counted)
                self._failed("the outbox cannot be read; it is tried again", error)
                is_more = False
            with self._changed:
                if not is_more:
                    self._changed.wait_for(lambda: self._stopping or self._is_poked, POLL_S)
                self._is_poked = False
                if self._stopping:
                    return

    def round(self) -> bool:
        """Claim what is due and begin to send it; True: there may be more."""
        now_us = self._now_us()
        with self._changed:
            if len(self._busy) >= MAX_BUSY:
                return False
            held = self._busy | {
                channel_id
                for channel_id, pace in self._paces.items()
                if pace.is_held(now_us, self._per_minute.get(channel_id, 60))
            }
        claimed = self._outbox.claim_notices(now_us=now_us, limit=CLAIM, lease_s=LEASE_S, except_channels=held)
        if not claimed:
            return False
        rows = {row.channel_id: row for row in self._outbox.channels()}
        groups: dict[str, list[NoticeRow]] = {}
        for notice in sorted(claimed, key=_order):
            groups.setdefault(notice.channel_id, []).append(notice)
        for channel_id, group in groups.items():
            row = rows.get(channel_id)
            if row is None or not row.enabled:
                why = "the channel was deleted" if row is None else "the channel is switched off"
                self._settle(group, Outcome(ok=False, text=why, may_retry=False))
                continue
            with self._changed:
                self._busy.add(channel_id)
            threading.Thread(
                target=self._deliver, args=(row, group), name=f"halfscope-send-{row.kind}", daemon=True
            ).start()
        return len(claimed) == CLAIM

    def _deliver(self, row: ChannelRow, group: Sequence[NoticeRow]) -> None:
        """Send to one channel all that was claimed for it."""
        kind = channels.find(row.kind)
        size = kind.max_notices if kind else len(group)
        parts = deque(group[first : first + size] for first in range(0, len(group), size))
        end_us = self._now_us() + int(1e6 * BUDGET_S)
        try:
            while parts:
                part = parts.popleft()
                if self._now_us() > end_us or self._stopping:
                    self._settle(part, Outcome(ok=False, text="not sent yet", retry_after_s=0))
                    continue
                outcome = self._tried(row, part)
                if outcome.is_size_or_form and len(part) > 1:
                    # One of them may be what is refused: that must not take the others with it.
                    parts.extendleft([notice] for notice in reversed(part))
                else:
                    self._settle(part, outcome)
        except Exception as error:  # noqa: BLE001  (a thread's end; counted)
            self._failed("what was sent could not be settled and may be sent again", error)
        finally:
            with self._changed:
                self._per_minute[row.channel_id] = kind.per_minute if kind else 60
                self._busy.discard(row.channel_id)
                self._is_poked = True
                self._changed.notify_all()

    def _tried(self, row: ChannelRow, part: Sequence[NoticeRow]) -> Outcome:
        """One message, once; failures of ours count as the channel's."""
        try:
            outcome = self._send(row, Message(notices=part), self._reach)
        except Exception as error:  # noqa: BLE001  (a channel's own; counted)
            self._failed(f"sending to a channel of kind {row.kind} failed", error)
            outcome = Outcome(ok=False, text=f"failed inside the server ({type(error).__name__}); its log says more")
        with self._changed:
            pace = self._paces.setdefault(row.channel_id, _Pace(seen_us=self._now_us()))
            pace.tokens -= 1
            pace.held_until_us = 0
        return outcome

    def _settle(self, part: Sequence[NoticeRow], outcome: Outcome) -> None:
        for notice in part:
            now_us = self._now_us()
            age_s = max(0.0, (now_us - notice.created_us) / 1e6)
            if outcome.ok:
                self._outbox.settle_notice(notice, state="sent", now_us=now_us)
            elif not outcome.may_retry or age_s >= GIVE_UP_S:
                log.warning("a notification of %s was given up: %s", notice.episode_id, outcome.text)
                self._outbox.settle_notice(notice, state="failed", now_us=now_us, error=outcome.text)
            else:
                due_us = now_us + int(1e6 * self._delay_s(age_s, outcome))
                self._outbox.settle_notice(notice, state="waiting", now_us=now_us, error=outcome.text, due_us=due_us)
                self._put_off(notice.channel_id, outcome, now_us, due_us)
                continue
            with self._changed:
                self.num_sent += outcome.ok
                self.num_failed += not outcome.ok

    def _put_off(self, channel_id: str, outcome: Outcome, now_us: int, due_us: int) -> None:
        """After a failure nothing new is sent to the channel for a while, but not for as long as the old one waits."""
        hold_s = MAX_HOLD_S if outcome.retry_after_s is None else outcome.retry_after_s
        with self._changed:
            self.num_retries += 1
            pace = self._paces.setdefault(channel_id, _Pace(seen_us=now_us))
            pace.held_until_us = max(pace.held_until_us, min(due_us, now_us + int(1e6 * hold_s)))

    def _delay_s(self, age_s: float, outcome: Outcome) -> float:
        """Until the next try: as long as it has been tried so far, so the gaps double."""
        if outcome.retry_after_s is not None:
            return outcome.retry_after_s
        return min(max(age_s, MIN_RETRY_S), MAX_RETRY_S) * (0.75 + 0.5 * self._jitter())

    def _failed(self, text: str, error: Exception) -> None:
        """Count and log, without the error's own text: it may hold an address with a token in it."""
        with self._changed:
            self.num_errors += 1
        places = traceback.extract_tb(error.__traceback__)
        where = f"{places[-1].filename}:{places[-1].lineno}" if places else "?"
        log.warning("alerts: %s (%s at %s)", text, type(error).__name__, where)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """What became of the test button."""

    ok: bool
    text: str
    took_ms: float


def send_test(row: ChannelRow, reach: Reach, *, base_url: str = "") -> TestOutcome:
    """Send a message that says it is a test, at once and beside the outbox; blocks for as long as sending may take."""
    begun_s = time.perf_counter()
    outcome = channels.send(row, Message(notices=[_example(row.channel_id, base_url)], is_test=True), reach)
    return TestOutcome(ok=outcome.ok, text=outcome.text, took_ms=1e3 * (time.perf_counter() - begun_s))


def _example(channel_id: str, base_url: str) -> NoticeRow:
    now_us = wall_clock_us()
    episode = EpisodeRow(
        episode_id=f"test-{secrets.token_hex(8)}",
        rule_id="test",
        rule_version=1,
        run_id="test",
        rule_name="Test of this channel",
        metric="nonfinite_rate.caught",
        severity="info",
        layer="",
        rank=None,
        labels={},
        attempt=0,
        state="firing",
        first_step=1000,
        first_us=now_us,
        fired_step=1200,
        fired_us=now_us,
        last_step=1200,
        last_us=now_us,
        resolved_step=None,
        resolved_us=None,
        resolution="",
        value=0.041,
        worst=0.041,
        threshold=0.01,
        text="this is how an alert looks: NaN/Inf rate 4.1% > 1% for 200 steps",
        evidence={},
        updated_us=now_us,
    )
    body = body_of(episode, kind="fired", run=None, rule=None, base_url="", now_us=now_us)
    return NoticeRow(
        episode_id=episode.episode_id,
        channel_id=channel_id,
        kind="fired",
        state="sending",
        num_tries=1,
        due_us=now_us,
        created_us=now_us,
        sent_us=None,
        error="",
        body={**body, "url": f"{base_url}/alerts?tab=channels" if base_url else ""},
    )


def _order(notice: NoticeRow) -> tuple[int, bool, str]:
    """As it happened; what was decided in one moment ends with the end."""
    return notice.created_us, notice.kind == "resolved", notice.episode_id
