"""From the outbox to real receivers: once each, whatever the receivers, the clock and the server do."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, pairwise

import pytest
from halfscope_server.alerts import channels
from halfscope_server.alerts import delivery as module
from halfscope_server.alerts.delivery import BURST, GIVE_UP_S, LEASE_S, MAX_RETRY_S, Delivery, send_test
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.alerts.posting import Outcome
from halfscope_server.store.store import Store
from halfscope_server.store.types import ChannelRow, NoticeRow

from tests.helpers.notices import episode, notice
from tests.helpers.receivers import HttpReceiver, http_receiver, mail_server
from tests.server.conftest import RunWriter

HERE = Reach.allowed(private=True, networks=())
NOW_US = 1_800_000_000_000_000
S = 1_000_000


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.now_us = NOW_US

    def __call__(self) -> int:
        return self.now_us

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * S)


class Outbox:
    """A real store with one run, channels and notifications in it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        run = RunWriter(store, "run1")
        run.commit()

    def channel(self, channel_id: str, url: str, *, enabled: bool = True) -> None:
        self.store.alerts.put_channel(
            ChannelRow(
                channel_id=channel_id,
                kind="webhook",
                name=channel_id,
                enabled=enabled,
                options={},
                secrets={"url": url},
                created_us=1,
                updated_us=1,
            )
        )

    def put(self, *notices: NoticeRow) -> None:
        """As evaluation does: with their episodes, in one transaction, now."""
        rows = [replace(row, created_us=self.clock.now_us, due_us=self.clock.now_us) for row in notices]
        episodes = [episode(episode_id=row.episode_id) for row in rows]
        assert self.store.alerts.save_evaluation("run1", episodes=episodes, notices=rows, now_us=self.clock.now_us)

    def rows(self, *numbers: int) -> list[NoticeRow]:
        return self.store.alerts.notices(*(f"e{number}" for number in numbers))

    def states(self, *numbers: int) -> list[str]:
        return [row.state for row in self.rows(*numbers)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(sqlite_url: str, clock: Clock) -> Iterator[Outbox]:
    store = Store.open(sqlite_url)
    yield Outbox(store, clock)
    store.close()


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as made:
        yield made


@pytest.fixture
def delivery(outbox: Outbox, clock: Clock) -> Delivery:
    return made(outbox, clock)


def made(
    outbox: Outbox, clock: Clock, send: Callable[[ChannelRow, Message, Reach], Outcome] = channels.send
) -> Delivery:
    return Delivery(outbox.store.alerts, HERE, send=send, now_us=clock, jitter=lambda: 0.5)


def deliver(delivery: Delivery) -> None:
    """One round, to its end."""
    delivery.round()
    assert delivery.wait_idle(20)


def received(receiver: HttpReceiver) -> list[list[str]]:
    """Ids of the notifications in each message."""
    return [[alert["id"] for alert in json.loads(request.body)["alerts"]] for request in receiver.requests]


def test_what_is_due_is_sent_once(outbox: Outbox, receiver: HttpReceiver, delivery: Delivery) -> None:
    """A notification arrives, is noted as sent, and no further round sends it again."""
    outbox.channel("c1", receiver.url)
    outbox.put(notice(1))
    for _ in range(3):
        deliver(delivery)
    assert received(receiver) == [["e1:fired"]]
    (row,) = outbox.rows(1)
    assert (row.state, row.num_tries, row.sent_us, row.error) == ("sent", 1, NOW_US, "")
    assert (delivery.num_sent, delivery.num_retries, delivery.num_errors) == (1, 0, 0)


def test_the_thread_sends_what_it_is_told_of(outbox: Outbox, receiver: HttpReceiver, delivery: Delivery) -> None:
    """Started and poked, delivery needs nobody who calls it."""
    outbox.channel("c1", receiver.url)
    receiver.hold = threading.Event()
    delivery.start()
    outbox.put(notice(1), notice(2))
    delivery.poke()
    receiver.hold.set()
    for _ in range(2000):
        if outbox.states(1, 2) == ["sent", "sent"]:
            break
        threading.Event().wait(0.01)
    delivery.stop()
    assert Counter(chain.from_iterable(received(receiver))) == {"e1:fired": 1, "e2:fired": 1}


def test_a_burst_is_one_message(outbox: Outbox, receiver: HttpReceiver, delivery: Delivery) -> None:
    """What happens at once is put together, in order; each notification is settled by itself."""
    outbox.channel("c1", receiver.url)
    outbox.put(*(notice(number) for number in range(1, 41)))
    deliver(delivery)
    (ids,) = received(receiver)
    assert sorted(ids) == sorted(f"e{number}:fired" for number in range(1, 41))
    assert set(outbox.states(*range(1, 41))) == {"sent"}


def test_a_channel_has_its_pace_and_the_rest_goes_together(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock
) -> None:
    """After a few messages at once the next wait for their time, and then are one message."""
    outbox.channel("c1", receiver.url)
    for number in range(1, 9):
        outbox.put(notice(number))
        deliver(delivery)
    assert [len(ids) for ids in received(receiver)] == [1] * BURST
    clock.pass_s(1.01)  # a webhook takes 60 a minute
    deliver(delivery)
    assert [len(ids) for ids in received(receiver)] == [1] * BURST + [8 - BURST]
    assert {row.num_tries for row in outbox.rows(*range(1, 9))} == {1}


def test_500_then_200_is_one_notification(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock
) -> None:
    """After a failure it is tried again in ten seconds, and not before; what was taken is not sent again."""
    outbox.channel("c1", receiver.url)
    receiver.answers = [(500, {})]
    outbox.put(notice(1))
    deliver(delivery)
    (row,) = outbox.rows(1)
    assert (row.state, row.error) == ("waiting", "127.0.0.1 answered 500; it is tried again")
    clock.pass_s(9.9)
    deliver(delivery)
    assert len(receiver.requests) == 1
    clock.pass_s(0.2)
    for _ in range(3):
        deliver(delivery)
        clock.pass_s(60)
    assert received(receiver) == [["e1:fired"]] * 2
    assert [(row.state, row.num_tries) for row in outbox.rows(1)] == [("sent", 2)]
    assert len({request.headers["Idempotency-Key"] for request in receiver.requests}) == 1


def test_who_is_down_gets_it_later_and_in_order(outbox: Outbox, delivery: Delivery, clock: Clock) -> None:
    """Beginning and end of an episode wait together, and are read in that order when the receiver is back."""
    with http_receiver() as gone:
        url = gone.url
    outbox.channel("c1", url)
    outbox.put(notice(1))
    deliver(delivery)
    for _ in range(8):
        clock.pass_s(600)
        deliver(delivery)
    outbox.put(notice(1, "resolved"))
    assert [row.state for row in outbox.rows(1)] == ["waiting", "waiting"]
    assert "nothing listens there" in outbox.rows(1)[0].error
    with http_receiver() as receiver:
        outbox.channel("c1", receiver.url)
        clock.pass_s(60)
        deliver(delivery)
        assert received(receiver) == [["e1:fired", "e1:resolved"]]
    assert outbox.states(1) == ["sent", "sent"]


def test_new_ones_try_a_channel_that_was_down_within_a_minute(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock
) -> None:
    """However long the back-off has become, something new is held for a minute at most, and takes the old along."""
    outbox.channel("c1", receiver.url)
    receiver.answers = [(503, {})] * 12
    outbox.put(notice(1))
    while receiver.answers:
        deliver(delivery)
        clock.pass_s(MAX_RETRY_S * 1.3)
    outbox.put(notice(2))
    deliver(delivery)
    assert received(receiver)[-1] == ["e1:fired", "e2:fired"]


def test_gaps_grow_up_to_a_quarter_of_an_hour_and_end_after_a_day(outbox: Outbox, clock: Clock) -> None:
    """The gaps double from ten seconds, and what cannot be sent for a day is given up with its last error."""
    tried_at_s: list[float] = []

    def send(*_: object) -> Outcome:
        tried_at_s.append((clock.now_us - NOW_US) / S)
        return Outcome(ok=False, text="still down")

    delivery = made(outbox, clock, send)
    outbox.channel("c1", "https://example.org/")
    outbox.put(notice(1))
    (row,) = outbox.rows(1)
    while row.state != "failed":
        deliver(delivery)
        (row,) = outbox.rows(1)
        clock.now_us = max(row.due_us, clock.now_us + 1)
    gaps_s = [after - before for before, after in pairwise(tried_at_s)]
    assert gaps_s[:6] == pytest.approx([10, 10, 20, 40, 80, 160], abs=0.1)
    assert max(gaps_s) == pytest.approx(MAX_RETRY_S, abs=0.1)
    assert GIVE_UP_S <= tried_at_s[-1] <= GIVE_UP_S + MAX_RETRY_S
    assert (row.error, delivery.num_failed) == ("still down", 1)
    clock.pass_s(10 * 86_400)
    deliver(delivery)
    assert row.num_tries == len(tried_at_s)


@pytest.mark.parametrize("status", [302, 401, 403, 404, 410])
def test_what_cannot_succeed_is_given_up_at_once(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock, status: int
) -> None:
    """A redirect or a refusal of the sender is not tried again, and its reason is kept."""
    outbox.channel("c1", receiver.url)
    receiver.answers = [(status, {"Location": receiver.url})]
    outbox.put(notice(1))
    for _ in range(3):
        deliver(delivery)
        clock.pass_s(3600)
    assert len(receiver.requests) == 1
    assert [(row.state, str(status) in row.error) for row in outbox.rows(1)] == [("failed", True)]


def test_one_that_is_refused_does_not_take_the_others_along(outbox: Outbox, clock: Clock) -> None:
    """Where a message of several is refused as such, each is sent by itself."""
    sent: list[list[str]] = []

    def send(_row: ChannelRow, message: Message, _reach: Reach) -> Outcome:
        ids = [row.episode_id for row in message.notices]
        sent.append(ids)
        return Outcome(ok="e2" not in ids, text="400", may_retry=False, is_size_or_form=True)

    outbox.channel("c1", "https://example.org/")
    outbox.put(notice(1), notice(2), notice(3))
    deliver(made(outbox, clock, send))
    assert sent == [["e1", "e2", "e3"], ["e1"], ["e2"], ["e3"]]
    assert outbox.states(1, 2, 3) == ["sent", "failed", "sent"]


def test_a_receiver_that_asks_for_time_gets_it(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock
) -> None:
    """Retry-After holds the channel, for what is new too."""
    outbox.channel("c1", receiver.url)
    receiver.answers = [(429, {"Retry-After": "120"})]
    outbox.put(notice(1))
    deliver(delivery)
    outbox.put(notice(2))
    clock.pass_s(119)
    deliver(delivery)
    assert len(receiver.requests) == 1
    clock.pass_s(2)
    deliver(delivery)
    assert received(receiver)[1] == ["e1:fired", "e2:fired"]


def test_a_slow_channel_holds_up_no_other(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery, clock: Clock
) -> None:
    """While one receiver thinks, another gets its own, and the slow one is not asked twice."""
    with http_receiver() as slow:
        slow.hold = threading.Event()
        outbox.channel("slow", slow.url)
        outbox.channel("c1", receiver.url)
        outbox.put(notice(1, channel="slow"), notice(1))
        delivery.round()
        for _ in range(2000):
            if receiver.requests and slow.requests:
                break
            threading.Event().wait(0.01)
        outbox.put(notice(2, channel="slow"))
        delivery.round()
        assert (len(receiver.requests), len(slow.requests)) == (1, 1)
        slow.hold.set()
        assert delivery.wait_idle(20)
        deliver(delivery)
        assert received(slow) == [["e1:fired"], ["e2:fired"]]


def test_a_server_that_stops_does_not_wait_for_a_slow_receiver(
    outbox: Outbox, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping gives what is being sent a moment; what was not begun is due again at once."""
    monkeypatch.setattr(module, "STOP_S", 0.05)
    is_sending, go_on = threading.Event(), threading.Event()

    def send(_row: ChannelRow, message: Message, _reach: Reach) -> Outcome:
        is_sending.set()
        assert go_on.wait(20)
        return Outcome(ok=False, text="400", may_retry=False, is_size_or_form=True)

    outbox.channel("c1", "https://example.org/")
    outbox.put(notice(1), notice(2))
    delivery = made(outbox, clock, send)
    delivery.start()
    assert is_sending.wait(20)
    delivery.stop()
    assert not delivery.wait_idle(0)
    go_on.set()
    assert delivery.wait_idle(20)
    assert [(row.state, row.due_us) for row in outbox.rows(1, 2)] == [("waiting", NOW_US)] * 2


@pytest.mark.parametrize("is_taken", [True, False], ids=["after sending", "before sending"])
def test_a_crash_costs_at_most_a_second_copy(
    outbox: Outbox, receiver: HttpReceiver, clock: Clock, is_taken: bool
) -> None:
    """A server that dies while sending leaves a claim; when its time is over another sends, with the same id."""
    outbox.channel("c1", receiver.url)
    outbox.put(notice(1))
    claimed = outbox.store.alerts.claim_notices(now_us=clock(), limit=50, lease_s=LEASE_S)
    if is_taken:
        (row,) = outbox.store.alerts.channels()
        assert channels.send(row, Message(notices=claimed), HERE).ok
    after = made(outbox, clock)
    deliver(after)
    assert len(receiver.requests) == is_taken
    clock.pass_s(LEASE_S + 1)
    for _ in range(3):
        deliver(after)
        clock.pass_s(LEASE_S + 1)
    assert received(receiver) == [["e1:fired"]] * (1 + is_taken)
    assert len({request.headers["Idempotency-Key"] for request in receiver.requests}) == 1


def test_two_servers_send_each_once(outbox: Outbox, receiver: HttpReceiver, clock: Clock) -> None:
    """Two that claim from one outbox share the work and double nothing."""
    outbox.channel("c1", receiver.url)
    both = [made(outbox, clock), made(outbox, clock)]
    for number in range(1, 6):
        outbox.put(notice(number))
        for one in both:
            one.round()
    assert all(one.wait_idle(20) for one in both)
    clock.pass_s(60)
    deliver(both[0])
    counts = Counter(chain.from_iterable(received(receiver)))
    assert counts == {f"e{number}:fired": 1 for number in range(1, 6)}


def test_channels_that_are_gone_or_off_give_up_what_waits(
    outbox: Outbox, receiver: HttpReceiver, delivery: Delivery
) -> None:
    """Nothing is sent over a channel that was switched off or deleted meanwhile, and the log says so."""
    outbox.channel("off", receiver.url, enabled=False)
    outbox.put(notice(1, channel="off"), notice(1, channel="gone"))
    deliver(delivery)
    errors = {row.channel_id: (row.state, row.error) for row in outbox.rows(1)}
    assert errors == {
        "off": ("failed", "the channel is switched off"),
        "gone": ("failed", "the channel was deleted"),
    }
    assert receiver.requests == []


def test_secrets_are_in_no_log_and_no_error(outbox: Outbox, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A channel that fails with its address in the exception does not get it into log or outbox, and is retried."""

    def send(row: ChannelRow, _message: Message, _reach: Reach) -> Outcome:
        raise RuntimeError(f"cannot post to {row.secrets['url']}")

    outbox.channel("c1", "https://example.org/s3cr3t-hook")
    outbox.put(notice(1))
    delivery = made(outbox, clock, send)
    deliver(delivery)
    (row,) = outbox.rows(1)
    assert (row.state, delivery.num_errors) == ("waiting", 1)
    assert "RuntimeError" in row.error
    assert "s3cr3t" not in row.error + caplog.text
    assert "RuntimeError" in caplog.text


def test_the_test_button_sends_what_looks_like_an_alert(receiver: HttpReceiver) -> None:
    """A test goes out at once, marked as one, and says what became of it."""
    row = ChannelRow(
        channel_id="c1",
        kind="webhook",
        name="mine",
        enabled=False,
        options={},
        secrets={"url": receiver.url},
        created_us=1,
        updated_us=1,
    )
    first = send_test(row, HERE, base_url="https://scope.test")
    receiver.answers = [(404, {})]
    second = send_test(row, HERE)
    assert (first.ok, first.text) == (True, "127.0.0.1 took it (200)")
    assert first.took_ms > 0
    assert (second.ok, "404" in second.text) == (False, True)
    content = json.loads(receiver.requests[0].body)
    assert content["test"] is True
    assert set(content["alerts"][0]) == {"id", *notice().body}
    assert content["alerts"][0]["url"] == "https://scope.test/alerts?tab=channels"


def test_a_test_letter_says_that_it_is_one() -> None:
    """The text of a test ends with the word."""
    with mail_server() as server:
        options = {
            "to": "a@b.org",
            "from": "a@b.org",
            "host": "127.0.0.1",
            "security": "none",
            "port": str(server.port),
        }
        row = ChannelRow(
            channel_id="c1",
            kind="email",
            name="mine",
            enabled=True,
            options=options,
            secrets={},
            created_us=1,
            updated_us=1,
        )
        assert send_test(row, HERE).ok
    plain = server.letters[0].get_body(("plain",))
    assert plain is not None
    assert plain.get_content().strip().endswith("This is a test.")
