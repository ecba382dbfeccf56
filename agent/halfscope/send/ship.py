"""ship(): journals to a server. The sender process, `halfscope sync` and the end of a run all use it.

Owns one connection and the outboxes of many streams; every turn moves what can be moved and never waits long. Must
not import torch or numpy. Invariant: a stream is left only when all of it is acknowledged, its run is gone, or
somebody else ships it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from halfscope.record.layout import StreamPlace, find_streams
from halfscope.record.reader import read_info
from halfscope.send.endpoint import LOCAL_KEY, Endpoint
from halfscope.send.newest import newest
from halfscope.send.outbox import BATCH_BYTES, Outbox
from halfscope.send.transport import Transport, TransportError, UnauthorizedError, open_transport
from halfscope.wire.agent_session import (
    Acked,
    AgentSession,
    BatchRefused,
    Key,
    Phase,
    Refused,
    RunGone,
    SessionEvent,
    Welcomed,
)
from halfscope.wire.backoff import Backoff
from halfscope.wire.messages import AgentFrame, StreamInfo

FRAME_INTERVAL_S = 0.5
"""Each frame costs this machine the same whatever it holds, here and where the server is: wake-ups, a commit, an
answer. Half a second is what a page is told of at most, too."""
LOOK_INTERVAL_S = 0.2
"""How often the journals are looked at: the end of a run is not to wait for the next frame."""
SCAN_INTERVAL_S = 0.5
BUSY_SCAN_INTERVAL_S = 1.0
"""Likewise while some stream is at work."""
LOOK_AGAIN_S = 60.0
"""When a stream that is not ours, or could not be read, is looked at again: a shared directory may hold thousands."""
SAVE_INTERVAL_S = 2.0
"""What is not saved when a sender is killed is asked of the server."""
MAX_UNACKED_BATCHES = 32
"""Of all streams together: with 256 KiB each, 8 MiB before compression that a server is asked to hold for us."""
LIVE_INTERVAL_S = 1.0
"""How often the newest numbers of a stream are told while its backlog is sent."""
LIVE_AGE_S = 30.0
"""What is older is no news of a training that goes on."""
MAX_CONNECT_DELAY_S = 30.0
MAX_LOCAL_CONNECT_DELAY_S = 3.0
"""A server on this machine is one person's: no crowd returns to it, and somebody may sit before the page."""

Wants = Callable[[StreamPlace, StreamInfo], bool]


@dataclass(slots=True, kw_only=True)
class Health:
    """How shipping goes, in words for a status file and for warnings."""

    state: str = "starting"
    """`starting`, `connected`, `unreachable`, `unauthorized`, `refused`."""
    message: str = ""
    url: str = ""
    num_failures: int = 0
    """Connections that failed or were lost, since the start."""
    num_connected: int = 0
    """Connections made since the start."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What has come of the streams that were found."""

    shipped: set[StreamPlace] = field(default_factory=set)
    """All of it acknowledged, now or before."""
    gone: set[StreamPlace] = field(default_factory=set)
    """The run was deleted on the server."""
    busy: set[StreamPlace] = field(default_factory=set)
    """Shipped by somebody else."""
    num_records: int = 0
    """Records sent, resent ones included."""


class Shipper:
    """Moves what journals below a directory hold to one server, turn by turn."""

    def __init__(
        self,
        directory: Path,
        find_endpoint: Callable[[], Endpoint],
        *,
        wants: Wants,
        follow: bool,
        connect: Callable[[Endpoint], Transport] = open_transport,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            directory: `HALFSCOPE_DIR`.
            find_endpoint: asked before every connection, so that a new address or token is found without a restart.
            wants: whether a stream is ours to ship.
            follow: keep a stream until it has ended; else leave it once what is there now is acknowledged.
            connect: makes the connection.
            clock_s: any monotonic clock.
        """
        self.health = Health()
        self.tally = Tally()
        self._directory = directory
        self._find_endpoint = find_endpoint
        self._wants = wants
        self._follow = follow
        self._connect = connect
        self._clock_s = clock_s
        self._session = AgentSession()
        self._outboxes: dict[Key, Outbox] = {}
        self._transport: Transport | None = None
        self._server = ""
        self._backoff = Backoff(base_s=0.5, cap_s=MAX_CONNECT_DELAY_S)
        self._connect_at_s = self._scan_at_s = self._save_at_s = clock_s()
        self._has_scanned = False
        self._look_again_s: dict[StreamPlace, float] = {}
        self._num_turns = 0

    @property
    def is_idle(self) -> bool:
        """Nothing that was found is left to ship."""
        return self._has_scanned and not self._outboxes

    @property
    def num_outboxes(self) -> int:
        """Streams at work."""
        return len(self._outboxes)

    @property
    def has_live_writers(self) -> bool:
        """Some stream may still grow."""
        return any(not outbox.outcome for outbox in self._outboxes.values())

    def look(self) -> None:
        """Take up what is there, without sending anything."""
        self._scan(self._clock_s())

    def turn(self, max_wait_s: float = LOOK_INTERVAL_S) -> None:
        """Do what can be done now, then wait for an answer, or for as long as given."""
        now_s = self._clock_s()
        if now_s >= self._scan_at_s:
            self._scan(now_s)
        self._ensure_connection(now_s)
        is_behind = False
        if self._transport is not None:
            try:
                is_behind = self._send(self._transport, now_s)
                stuck = self._session.is_stuck(now_s)
                if stuck:
                    raise TransportError(stuck)
                wait_s = 0.0 if is_behind else self._wait_s(now_s, max_wait_s)
                for frame in self._transport.receive(wait_s):
                    for event in self._session.receive(frame, self._clock_s()):
                        self._handle(event)
            except TransportError as error:
                self._disconnected(error)
        elif max_wait_s > 0:
            time.sleep(min(max_wait_s, max(0.0, self._connect_at_s - now_s, 0.01)))
        if now_s >= self._save_at_s:
            self._save_at_s = now_s + SAVE_INTERVAL_S
            for outbox in self._outboxes.values():
                outbox.save()

    def _wait_s(self, now_s: float, max_wait_s: float) -> float:
        """Until the next frame is due where one waits, and no longer than given."""
        due_s = [outbox.due_s for outbox in self._outboxes.values() if outbox.num_waiting_bytes]
        return max(0.0, min([max_wait_s, *(at_s - now_s for at_s in due_s if at_s > now_s)]))

    def close(self) -> None:
        """Leave the connection and let go of all streams."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        for outbox in self._outboxes.values():
            outbox.close()
        self._outboxes.clear()

    def _scan(self, now_s: float) -> None:
        """Take up streams that are new."""
        self._scan_at_s = now_s + (BUSY_SCAN_INTERVAL_S if self._outboxes else SCAN_INTERVAL_S)
        endpoint = self._endpoint()
        if endpoint is None:
            return
        if endpoint.key != self._server:
            self._leave_server(endpoint)
        known = {outbox.place for outbox in self._outboxes.values()} | self.tally.shipped | self.tally.gone
        self.tally.busy.clear()
        for place in find_streams(self._directory):
            if place in known or self._look_again_s.get(place, now_s) > now_s or not place.segments():
                continue
            if self._wants(place, read_info(place)):
                self._look_again_s.pop(place, None)
                self._take_up(place, now_s)
            else:
                self._look_again_s[place] = now_s + LOOK_AGAIN_S
        self._has_scanned = True

    def _endpoint(self) -> Endpoint | None:
        try:
            endpoint = self._find_endpoint()
        except ValueError as error:  # an address that is none: somebody may mend it
            self._disconnected(TransportError(str(error)))
            return None
        self.health.url = endpoint.url
        return endpoint

    def _leave_server(self, endpoint: Endpoint) -> None:
        """Another server is asked for now: what is acknowledged there is another matter."""
        self.close()
        self._server = endpoint.key
        self._session = AgentSession()
        self.tally = Tally()

    def _take_up(self, place: StreamPlace, now_s: float) -> None:
        outbox = Outbox.open(place, self._server)
        if outbox is None:
            self.tally.busy.add(place)
            return
        try:
            outbox.look_at_writer(time.time())
        except OSError as error:
            self._leave_unreadable(outbox, error)
            return
        # Shipping once asks the server anew about what it had acknowledged: it may have lost that since.
        if outbox.ack.gone or (self._follow and outbox.is_settled and outbox.outcome):
            (self.tally.gone if outbox.ack.gone else self.tally.shipped).add(place)
            outbox.close()
            return
        self._outboxes[outbox.key] = outbox
        self._session.add(outbox.hello(), now_s)

    def _ensure_connection(self, now_s: float) -> None:
        if self._transport is not None or now_s < self._connect_at_s or not self._outboxes:
            return
        endpoint = self._endpoint()
        if endpoint is None or endpoint.key != self._server:
            self._scan_at_s = now_s
            return
        try:
            self._transport = self._connect(endpoint)
        except TransportError as error:
            self._disconnected(error)
            return
        self._session.connected(self._clock_s())
        self.health.state, self.health.message = "connected", ""
        self.health.num_connected += 1

    def _disconnected(self, error: TransportError) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self.health.state = "unauthorized" if isinstance(error, UnauthorizedError) else "unreachable"
        self.health.message = str(error)
        self.health.num_failures += 1
        cap_s = MAX_LOCAL_CONNECT_DELAY_S if self._server == LOCAL_KEY else MAX_CONNECT_DELAY_S
        self._connect_at_s = self._clock_s() + min(cap_s, self._backoff.delay_s())

    def _send(self, transport: Transport, now_s: float) -> bool:
        """Send what is due; True where more waits and may go at once."""
        frames: list[AgentFrame] = list(self._session.hellos(now_s))
        is_behind = False
        room = MAX_UNACKED_BATCHES - sum(self._session.num_unacked(key) for key in self._outboxes)
        finished: list[tuple[Key, str]] = []
        for key in self._keys_in_turn():
            outbox = self._outboxes[key]
            if self._session.phase(key) is not Phase.OPEN:
                continue
            try:
                for batch in self._batches(key, outbox, now_s, room):
                    frames.append(batch)
                    room -= 1
                frames += self._live(key, outbox, now_s)
                if outbox.is_shipped and self._session.num_unacked(key) == 0:
                    outbox.look_at_writer(time.time())
                    if outbox.fill():
                        is_behind = True
                    elif outbox.outcome or not self._follow:
                        finished.append((key, outbox.outcome))
            except OSError as error:
                self._cannot_read(key, error)
        for key, outcome in finished:
            if outcome:
                frames.append(self._session.bye(key, outcome, time.time_ns() // 1000))
        if frames:
            transport.send(frames)
        for key, outcome in finished:
            self._finish(key, outcome)
        return is_behind

    def _keys_in_turn(self) -> list[Key]:
        """All streams, each time another one first: a long backlog of some does not hold up the others."""
        keys = list(self._outboxes)
        self._num_turns += 1
        first = self._num_turns % len(keys) if keys else 0
        return keys[first:] + keys[:first]

    def _cannot_read(self, key: Key, error: OSError) -> None:
        """A disk or network filesystem that fails under one journal is no reason to stop with the others."""
        outbox = self._outboxes.pop(key)
        self._session.remove(key)
        self._leave_unreadable(outbox, error)

    def _leave_unreadable(self, outbox: Outbox, error: OSError) -> None:
        self._look_again_s[outbox.place] = self._clock_s() + LOOK_AGAIN_S
        self.health.message = f"cannot read {outbox.place.path}: {error}"
        outbox.close()

    def _batches(self, key: Key, outbox: Outbox, now_s: float, room: int) -> Iterator[AgentFrame]:
        while room > 0 and self._session.room(key) > 0:
            waiting = outbox.fill()
            may_wait = waiting < BATCH_BYTES and not outbox.end_seen
            if waiting == 0 or (may_wait and now_s < outbox.due_s):
                return
            cut = outbox.cut()
            assert cut is not None
            batch = self._session.batch(key, cut.count, cut.payloads, now_s)
            outbox.sent(batch, cut)
            self.tally.num_records += len(cut.payloads)
            outbox.due_s = now_s + FRAME_INTERVAL_S
            room -= 1
            yield batch

    def _live(self, key: Key, outbox: Outbox, now_s: float) -> list[AgentFrame]:
        """The newest numbers of a stream of which more waits than may be sent now; they are not stored."""
        if now_s < outbox.live_due_s:
            return []
        outbox.live_due_s = now_s + LIVE_INTERVAL_S  # also where nothing waits: to find that out is to read
        if outbox.fill() < BATCH_BYTES:
            return []
        found = newest(outbox.place, key)
        return [found] if found is not None and time.time() - found.time_us / 1e6 <= LIVE_AGE_S else []

    def _finish(self, key: Key, outcome: str) -> None:
        outbox = self._outboxes.pop(key)
        if outcome:
            outbox.set_ended(outcome)
        self.tally.shipped.add(outbox.place)
        outbox.close()
        self._session.remove(key)

    def _handle(self, event: SessionEvent) -> None:
        if isinstance(event, Refused):
            self._refused(event)
            return
        outbox = self._outboxes.get(event.key)
        if outbox is None:
            return
        if isinstance(event, Acked):
            outbox.acked(event.next, event.digest)
            # Not as soon as a connection is made: one that is cut before it brings anything is a failure.
            self._backoff.reset()
            self.health.state, self.health.message = "connected", ""
        elif isinstance(event, Welcomed):
            try:
                self._welcomed(event, outbox)
            except OSError as error:
                self._cannot_read(event.key, error)
        elif isinstance(event, BatchRefused):
            outbox.refused(event.first, event.count, event.code, event.message)
            self.health.message = event.message
        elif isinstance(event, RunGone):
            outbox.set_gone()
            self.tally.gone.add(outbox.place)
            outbox.close()
            del self._outboxes[event.key]
            self._session.remove(event.key)

    def _refused(self, event: Refused) -> None:
        if event.code == "unauthorized":
            raise UnauthorizedError(event.message)
        if event.key is None:
            raise TransportError(f"{event.code}: {event.message}")
        if event.code != "fenced":  # another sender of the same stream: nothing is wrong, and digests decide
            self.health.state, self.health.message = "refused", event.message

    def _welcomed(self, event: Welcomed, outbox: Outbox) -> None:
        if outbox.matches(event.next, event.digest):
            outbox.start_at(event.next, event.digest)
            self._session.resume(event.key)
            return
        has_forked = outbox.fork(event.next)
        self._session.remove(event.key)
        del self._outboxes[event.key]
        if has_forked:
            self._outboxes[outbox.key] = outbox
            self._session.add(outbox.hello(), self._clock_s())
        else:
            self.tally.shipped.add(outbox.place)
            outbox.close()
