"""The agent's session against a model of a server: whatever is dropped, doubled or late, every record arrives once."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from halfscope.wire.agent_session import (
    ACK_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    VERSION_RETRY_S,
    Acked,
    AgentSession,
    BatchRefused,
    Phase,
    Refused,
    RunGone,
    Welcomed,
)
from halfscope.wire.codec import chain
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import (
    GENESIS_DIGEST,
    Ack,
    Batch,
    Command,
    Gone,
    Hello,
    Refuse,
    ServerFrame,
    StreamInfo,
    Welcome,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

RUN = "run1"
KEY = (RUN, "aa")
HELLO = Hello(run_id=RUN, stream="aa", info=StreamInfo())


def welcomed_session(next_seq: int = 0) -> AgentSession:
    session = AgentSession(window=3, uniform=lambda: 1.0)
    session.add(HELLO, 0.0)
    session.connected(0.0)
    assert session.hellos(0.0) == [HELLO]
    events = session.receive(Welcome(*KEY, epoch=1, next=next_seq, digest=GENESIS_DIGEST), 0.0)
    assert events == [Welcomed(key=KEY, next=next_seq, digest=GENESIS_DIGEST)]
    session.resume(KEY)
    return session


def test_nothing_is_sent_before_the_journal_is_matched() -> None:
    """Between the welcome and the comparison of digests there is no room for a batch."""
    session = AgentSession()
    session.add(HELLO, 0.0)
    assert session.room(KEY) == 0
    session.hellos(0.0)
    session.receive(Welcome(*KEY, epoch=1, next=5, digest=GENESIS_DIGEST), 0.0)
    assert session.room(KEY) == 0
    with pytest.raises(SequenceError):
        session.batch(KEY, 1, [b"x"], 0.0)
    session.resume(KEY)
    batch = session.batch(KEY, 1, [b"x"], 0.0)
    assert (batch.first, batch.epoch, batch.digest) == (5, 1, chain(GENESIS_DIGEST, b"x"))


def test_the_window_bounds_what_is_unacknowledged() -> None:
    """An acknowledgement of a later batch acknowledges those before it."""
    session = welcomed_session()
    batches = [session.batch(KEY, 1, [bytes([index])], 0.0) for index in range(3)]
    with pytest.raises(SequenceError, match="no room"):
        session.batch(KEY, 1, [b"x"], 0.0)
    (event,) = session.receive(Ack(*KEY, next=2, epoch=1), 0.0)
    assert event == Acked(key=KEY, next=2, digest=batches[1].digest)
    assert session.room(KEY) == 2


def test_old_and_foreign_acknowledgements_mean_nothing() -> None:
    """Duplicates, reordered ones, those of another epoch and of streams not known here."""
    session = welcomed_session()
    for index in range(2):
        session.batch(KEY, 1, [bytes([index])], 0.0)
    assert session.receive(Ack(*KEY, next=2, epoch=1), 0.0)
    for frame in (Ack(*KEY, next=2, epoch=1), Ack(*KEY, next=1, epoch=1), Ack(RUN, "bb", next=9, epoch=1)):
        assert session.receive(frame, 0.0) == []
    session.batch(KEY, 1, [b"x"], 0.0)
    assert session.receive(Ack(*KEY, next=3, epoch=7), 0.0) == []
    assert session.room(KEY) == 2


def test_an_acknowledgement_where_no_batch_ends_makes_it_greet_anew() -> None:
    """Somebody else writes the stream: only a welcome can tell what is there."""
    session = welcomed_session()
    session.batch(KEY, 2, [b"a", b"b"], 0.0)
    assert session.receive(Ack(*KEY, next=1, epoch=1), 0.0) == []
    assert session.phase(KEY) is Phase.WAITING


def test_a_new_connection_greets_everything_again() -> None:
    """What was sent on the old one and not acknowledged is sent again from where the server says."""
    session = welcomed_session()
    session.batch(KEY, 1, [b"x"], 0.0)
    session.connected(5.0)
    assert session.hellos(5.0) == [HELLO]
    session.receive(Welcome(*KEY, epoch=2, next=0, digest=GENESIS_DIGEST), 5.0)
    session.resume(KEY)
    assert session.batch(KEY, 1, [b"x"], 5.0).epoch == 2


def test_a_fenced_stream_comes_back_later_and_later() -> None:
    """Two senders of one journal take turns at growing intervals; others are not held up."""
    session = welcomed_session()
    now_s, delays = 0.0, []
    for epoch in range(2, 6):
        session.batch(KEY, 1, [b"x"], now_s)
        (event,) = session.receive(Refuse("fenced", "newer", *KEY), now_s)
        assert event == Refused(key=KEY, code="fenced", message="newer")
        due_s = now_s
        while not session.hellos(due_s):
            due_s += 0.25
        delays.append(due_s - now_s)
        now_s = due_s
        session.receive(Welcome(*KEY, epoch=epoch, next=0, digest=GENESIS_DIGEST), now_s)
        session.resume(KEY)
    assert delays == [1.0, 2.0, 4.0, 8.0]


def test_a_refused_batch_is_named_once() -> None:
    """The batches behind it are refused too; that is the same news."""
    session = welcomed_session(next_seq=10)
    session.batch(KEY, 2, [b"a", b"b"], 0.0)
    session.batch(KEY, 1, [b"c"], 0.0)
    refusal = Refuse("bad_batch", "what is this", *KEY)
    assert session.receive(refusal, 0.0) == [
        BatchRefused(key=KEY, first=10, count=2, code="bad_batch", message="what is this")
    ]
    assert session.receive(refusal, 0.0) == []
    assert session.room(KEY) == 0


def test_the_server_says_when_to_come_back() -> None:
    """`busy` names a time; a version that is not spoken waits for somebody to install one."""
    session = welcomed_session()
    session.receive(Refuse("busy", "later", *KEY, retry_after_s=7.0), 0.0)
    assert session.hellos(6.9) == []
    assert session.hellos(7.0) == [HELLO]
    session.receive(Refuse("version", "speak 3", *KEY), 7.0)
    assert session.hellos(7.0 + VERSION_RETRY_S - 1) == []
    # A new connection does not make it sooner.
    session.connected(8.0)
    assert session.hellos(8.0) == []


def test_a_refusal_without_a_stream_is_about_the_connection() -> None:
    """Whoever drives the session leaves the connection."""
    session = welcomed_session()
    assert session.receive(Refuse("unauthorized", "token expired"), 0.0) == [
        Refused(key=None, code="unauthorized", message="token expired")
    ]


def test_a_deleted_run_stops_all_its_streams() -> None:
    """And no later connection takes them up."""
    session = welcomed_session()
    session.add(Hello(run_id=RUN, stream="bb", info=StreamInfo()), 0.0)
    session.add(Hello(run_id="run2", stream="cc", info=StreamInfo()), 0.0)
    assert session.receive(Gone(RUN), 0.0) == [RunGone(key=KEY), RunGone(key=(RUN, "bb"))]
    assert session.receive(Gone(RUN), 0.0) == []
    session.connected(1.0)
    assert [hello.run_id for hello in session.hellos(1.0)] == ["run2"]


def test_silence_is_noticed() -> None:
    """No answer to a greeting, or to a batch, for too long."""
    session = AgentSession()
    session.add(HELLO, 0.0)
    session.hellos(0.0)
    assert session.is_stuck(HELLO_TIMEOUT_S - 0.1) == ""
    assert "greeting" in session.is_stuck(HELLO_TIMEOUT_S)
    session = welcomed_session()
    session.batch(KEY, 1, [b"x"], 10.0)
    assert session.is_stuck(10.0 + ACK_TIMEOUT_S - 0.1) == ""
    assert "acknowledgement" in session.is_stuck(10.0 + ACK_TIMEOUT_S)


def test_a_farewell_waits_for_the_last_acknowledgement() -> None:
    """It says that everything is there."""
    session = welcomed_session()
    session.batch(KEY, 1, [b"x"], 0.0)
    with pytest.raises(SequenceError, match="farewell"):
        session.bye(KEY, "ended", 5)
    session.receive(Ack(*KEY, next=1, epoch=1), 0.0)
    assert session.bye(KEY, "ended", 5).outcome == "ended"


def test_a_command_is_passed_over() -> None:
    """Its kind is reserved; agents of this version do nothing with it."""
    assert welcomed_session().receive(Command(RUN, "1", "stop"), 0.0) == []


def test_a_batch_of_one_record_may_cover_many_seqs_and_no_other() -> None:
    """A single Lost stands for a range; two records for three seqs are a mistake."""
    session = welcomed_session()
    batch = session.batch(KEY, 50, [b"lost"], 0.0)
    assert (batch.first, batch.count, session.next_seq(KEY)) == (0, 50, 50)
    with pytest.raises(SequenceError, match="only a single Lost"):
        session.batch(KEY, 3, [b"a", b"b"], 0.0)


class ShippingMachine(RuleBasedStateMachine):
    """Two streams over a connection that drops, doubles and delays frames and breaks at any time.

    The network loses nothing in the middle of a connection (TCP), but a connection may break with anything still
    under way, the server may answer late, answers may come twice, and another sender may fence ours.
    """

    NAMES = ("aa", "bb")
    new_model: type

    def __init__(self) -> None:
        super().__init__()
        self.server = self.new_model()
        self.session = AgentSession(window=2, uniform=lambda: 0.0)
        self.journals: dict[str, list[bytes]] = {name: [] for name in self.NAMES}
        self.acked: dict[str, int] = dict.fromkeys(self.NAMES, 0)
        self.to_server: deque[Any] = deque()
        self.to_agent: deque[ServerFrame] = deque()
        self.now_s = 0.0
        for name in self.NAMES:
            self.session.add(Hello(run_id=RUN, stream=name, info=StreamInfo()), 0.0)
        self.session.connected(0.0)

    @rule(name=st.sampled_from(NAMES), payload=st.binary(min_size=1, max_size=5))
    def write(self, name: str, payload: bytes) -> None:
        self.journals[name].append(payload)

    @rule()
    def greet(self) -> None:
        self.now_s += 1.0
        self.to_server.extend(self.session.hellos(self.now_s))

    @rule(name=st.sampled_from(NAMES), size=st.integers(1, 3))
    def send(self, name: str, size: int) -> None:
        key = (RUN, name)
        if self.session.room(key) > 0:
            first = self.session.next_seq(key)
            payloads = self.journals[name][first : first + size]
            if payloads:
                self.to_server.append(self.session.batch(key, len(payloads), payloads, self.now_s))

    @precondition(lambda self: self.to_server)
    @rule()
    def serve(self) -> None:
        self.to_agent.extend(self.server.answer(self.to_server.popleft()))

    @precondition(lambda self: self.to_agent)
    @rule(twice=st.booleans())
    def deliver(self, twice: bool) -> None:
        frame = self.to_agent.popleft()
        for _ in range(1 + twice):
            for event in self.session.receive(frame, self.now_s):
                if isinstance(event, Welcomed):
                    self.check_chain(event.key[1], event.next, event.digest)
                    self.session.resume(event.key)
                    self.acked[event.key[1]] = event.next  # an acknowledgement that was lost on the way comes so
                elif isinstance(event, Acked):
                    self.check_chain(event.key[1], event.next, event.digest)
                    self.acked[event.key[1]] = event.next

    @rule()
    def break_connection(self) -> None:
        self.to_server.clear()
        self.to_agent.clear()
        self.session.connected(self.now_s)

    @precondition(lambda self: len(self.to_agent) > 1)
    @rule()
    def reorder(self) -> None:
        self.to_agent.rotate(1)

    @rule(name=st.sampled_from(NAMES))
    def another_sender_greets(self, name: str) -> None:
        self.server.answer(Hello(run_id=RUN, stream=name, info=StreamInfo()))

    def check_chain(self, name: str, next_seq: int, digest: bytes) -> None:
        wanted = GENESIS_DIGEST
        for payload in self.journals[name][:next_seq]:
            wanted = chain(wanted, payload)
        assert digest == wanted

    @invariant()
    def the_server_holds_a_prefix_once_and_acknowledgements_are_true(self) -> None:
        for name in self.NAMES:
            stream = self.server.streams.get((RUN, name))
            stored = [] if stream is None else stream.payloads
            assert stored == list(enumerate(self.journals[name][: len(stored)]))
            assert self.acked[name] <= len(stored)

    def teardown(self) -> None:
        """Left alone with a working connection, everything arrives."""
        self.break_connection()
        for _ in range(200):
            if all(self.acked[name] == len(self.journals[name]) for name in self.NAMES):
                return
            self.greet()
            for name in self.NAMES:
                self.send(name, 3)
            while self.to_server:
                self.serve()
            while self.to_agent:
                self.deliver(twice=False)
        raise AssertionError(f"acknowledged {self.acked}")


@pytest.fixture(autouse=True)
def _new_model(model: Any) -> None:
    """A state machine is no test function: it cannot ask for a fixture itself."""
    ShippingMachine.new_model = type(model)


TestShipping = ShippingMachine.TestCase
TestShipping.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)


def test_the_model_of_a_server_refuses_what_does_not_continue(model: Any) -> None:
    """The oracle itself: a batch of an old epoch and one that leaves a gap are not taken."""
    model.answer(HELLO)
    session = welcomed_session()
    batch = session.batch(KEY, 1, [b"x"], 0.0)
    (fenced,) = model.answer(Batch(*KEY, 0, 0, 1, batch.digest, batch.raw_bytes, batch.body))
    assert fenced.code == "fenced"
    (gap,) = model.answer(Batch(*KEY, 1, 1, 1, batch.digest, batch.raw_bytes, batch.body))
    assert gap.code == "bad_batch"
    assert model.answer(batch) == [Ack(*KEY, next=1, epoch=1)]
