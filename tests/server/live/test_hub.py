"""The live hub over a real store: what a viewer gets, how often, and what it costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from halfscope.wire.messages import Live
from halfscope_server import panels
from halfscope_server.api.live_models import ServerMessage
from halfscope_server.live import CompareRequest, Hub, RunRequest, RunsRequest, Subscription
from halfscope_server.query import Views, Window
from halfscope_server.store.store import Store
from pydantic import TypeAdapter

Message = dict[str, Any]
WAIT_S = 10.0
MESSAGES: TypeAdapter[Any] = TypeAdapter(ServerMessage)


async def take_until(subscription: Subscription, fits: Callable[[Message], bool]) -> list[Message]:
    """Messages up to the first that fits."""
    seen: list[Message] = []

    async def take() -> list[Message]:
        while True:
            for message in await subscription.next():
                MESSAGES.validate_python(message)
                seen.append(message)
                if fits(message):
                    return seen

    return await asyncio.wait_for(take(), WAIT_S)


def with_hub(store: Store, body: Callable[[Hub], Awaitable[None]], **options: Any) -> None:
    """Run a test on a loop of its own, with a fast hub."""

    async def run() -> None:
        hub = Hub(store, **{"interval_s": 0.02, "runs_interval_s": 0.02, "poll_s": 60.0, **options})
        try:
            await body(hub)
        finally:
            await hub.close()

    asyncio.run(run())


def last_step(message: Message) -> int | None:
    """The newest step that a message about a run tells of."""
    step = message["summary"]["last_step"] if message["type"] == "run" else None
    assert step is None or isinstance(step, int)
    return step


def test_a_viewer_gets_the_present_state_and_then_what_comes(lite: Store, write_run: Callable[..., Any]) -> None:
    """Summary, strip and panels at once; after a commit their newer versions."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1", panels=("loss", "no-such-panel")))
        first = await take_until(viewer, lambda m: m["type"] == "panels")
        assert [m["type"] for m in first] == ["run", "panels"]
        assert last_step(first[0]) == 9
        assert [fill["panel"] for fill in first[1]["fills"]] == ["loss"]
        writer.points("loss", range(10, 20), 1.0)
        hub.notify(writer.commit())
        later = await take_until(viewer, lambda m: m["type"] == "panels")
        assert last_step(later[0]) == 19
        assert later[-1]["fills"][0]["last_step"] == 19

    with_hub(lite, body)


def test_while_a_backlog_comes_the_page_is_told_where_the_training_is(
    lite: Store, write_run: Callable[..., Any]
) -> None:
    """Its newest step and loss, in words, until what is stored has caught up; series not declared yet are left out."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    run_id, stream = writer._sender.key
    (loss,) = lite.sids(run_id, stream)

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1"))
        (first,) = await take_until(viewer, lambda m: m["type"] == "run")
        assert first["ahead"] is None
        hub.live(Live(run_id, stream, 12_345, 1, {loss: float("nan"), 77: 5.0}))
        told = await take_until(viewer, lambda m: m["ahead"] is not None)
        assert (last_step(told[-1]), told[-1]["ahead"]) == (9, "step 12,345, loss NaN")
        hub.live(Live(run_id, stream, 12_400, 2, {loss: 0.25}))
        told = await take_until(viewer, lambda m: m["ahead"] != "step 12,345, loss NaN")
        assert told[-1]["ahead"] == "step 12,400, loss 0.25"
        writer.points("loss", range(10, 12_401), 1.0)
        hub.notify(writer.commit())
        told = await take_until(viewer, lambda m: last_step(m) == 12_400)
        assert told[-1]["ahead"] is None

    with_hub(lite, body)


def test_a_message_is_plain_json(lite: Store, write_run: Callable[..., Any]) -> None:
    """Keys are text and numbers finite, so that any encoder writes it."""
    writer = write_run()
    writer.points("loss", range(10), [float("nan")] * 9 + [float("inf")])
    writer.event("loss_nonfinite", 3, "critical", value="NaN", caught=False)
    writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1", panels=("loss",)))
        messages = await take_until(viewer, lambda m: m["type"] == "panels")
        for message in messages:
            assert orjson.loads(orjson.dumps(message)) == orjson.loads(
                MESSAGES.dump_json(MESSAGES.validate_python(message))
            )
        assert messages[0]["summary"]["loss"] == "Infinity"

    with_hub(lite, body)


def test_a_slow_viewer_holds_only_the_newest_state(lite: Store, write_run: Callable[..., Any]) -> None:
    """While it does not take, later states replace earlier ones."""
    writer = write_run()
    writer.points("loss", [0], 1.0)
    writer.commit()

    async def body(hub: Hub) -> None:
        fast, slow = hub.subscribe(), hub.subscribe()
        for viewer in (fast, slow):
            viewer.watch(RunRequest(run="run1", panels=("loss",)))
        await take_until(fast, lambda m: m["type"] == "panels")
        for step in range(1, 6):
            writer.points("loss", [step], 1.0)
            hub.notify(writer.commit())
            await take_until(fast, lambda m, step=step: last_step(m) == step)
        taken = await asyncio.wait_for(slow.next(), WAIT_S)
        assert [m["type"] for m in taken] == ["run", "panels"]
        assert last_step(taken[0]) == 5

    with_hub(lite, body)


def test_a_viewer_that_stalls_is_not_computed_for_and_resynced_when_back(
    lite: Store, write_run: Callable[..., Any]
) -> None:
    """What waited is dropped; the next take gets the state of then, whole."""
    writer = write_run()
    writer.points("loss", [0], 1.0)
    writer.commit()
    now = [0.0]

    async def body(hub: Hub) -> None:
        fast, slow = hub.subscribe(), hub.subscribe()
        for viewer in (fast, slow):
            viewer.watch(RunRequest(run="run1", panels=("loss",)))
        await take_until(fast, lambda m: m["type"] == "panels")
        for step in (1, 2, 3):
            now[0] += 60.0
            writer.points("loss", [step], 1.0)
            hub.notify(writer.commit())
            await take_until(fast, lambda m, step=step: last_step(m) == step)
        assert slow.is_stalled
        back = await take_until(slow, lambda m: m["type"] == "panels")
        assert last_step(back[0]) == 3
        assert not slow.is_stalled

    with_hub(lite, body, clock_s=lambda: now[0])


def test_many_viewers_share_one_computation(
    lite: Store, write_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten viewers of the same panel and window cost one fill per version, and are handed one and the same message."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.commit()
    calls: list[Window] = []
    kind = type(panels.discover()[0])
    original = kind.fill

    def counted(self: Any, view: Any, window: Window) -> Any:
        calls.append(window)
        return original(self, view, window)

    monkeypatch.setattr(kind, "fill", counted)

    async def body(hub: Hub) -> None:
        viewers = [hub.subscribe() for _ in range(10)]
        for viewer in viewers:
            viewer.watch(RunRequest(run="run1", panels=("loss",)))
        for viewer in viewers:
            await take_until(viewer, lambda m: m["type"] == "panels")
        assert len(calls) == 1
        assert hub.num_clients == 10
        writer.points("loss", range(100, 200), 1.0)
        hub.notify(writer.commit())
        news = [await take_until(viewer, lambda m: m["type"] == "panels") for viewer in viewers]
        assert len(calls) == 2
        assert len({id(messages[0]) for messages in news}) == len({id(messages[-1]) for messages in news}) == 1

    with_hub(lite, body)


def test_a_lost_hint_costs_one_poll(lite: Store, write_run: Callable[..., Any]) -> None:
    """Without any call of notify, as for commits of another replica, the poll finds the news."""
    writer = write_run()
    writer.points("loss", [0], 1.0)
    writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1"))
        await take_until(viewer, lambda m: last_step(m) == 0)
        writer.points("loss", [1], 1.0)
        writer.commit()
        await take_until(viewer, lambda m: last_step(m) == 1)

    with_hub(lite, body, poll_s=0.05)


def test_hints_from_the_writer_thread_arrive(lite: Store, write_run: Callable[..., Any]) -> None:
    """notify is called from a thread that knows no event loop."""
    writer = write_run()
    writer.points("loss", [0], 1.0)
    writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1"))
        await take_until(viewer, lambda m: last_step(m) == 0)

        def write() -> None:
            writer.points("loss", [1], 1.0)
            hub.notify(writer.commit())

        thread = threading.Thread(target=write)
        thread.start()
        await take_until(viewer, lambda m: last_step(m) == 1)
        thread.join()

    with_hub(lite, body)


def test_a_deleted_run_is_said_once_and_left(lite: Store, write_run: Callable[..., Any]) -> None:
    """The viewer learns the name and when, and is told nothing more."""
    writer = write_run(name="gone soon")
    writer.points("loss", [0], 1.0)
    writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1"))
        await take_until(viewer, lambda m: m["type"] == "run")
        lite.delete_run("run1", now_us=77)
        hub.changed("run1")
        messages = await take_until(viewer, lambda m: m["type"] == "deleted")
        assert messages[-1] == {"type": "deleted", "run": "run1", "name": "gone soon", "deleted_us": 77}
        assert viewer.request is None

    with_hub(lite, body)


def test_an_unknown_run_is_an_error(lite: Store) -> None:
    """There is nothing to wait for."""

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="nowhere"))
        (message,) = await asyncio.wait_for(viewer.next(), WAIT_S)
        assert (message["type"], message["code"]) == ("error", "not_found")

    with_hub(lite, body)


def test_the_runs_table_follows_new_runs_names_and_deletions(lite: Store, write_run: Callable[..., Any]) -> None:
    """A started, a renamed and a deleted run each change the table."""

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunsRequest(strip_bins=40))
        (empty,) = await take_until(viewer, lambda m: m["type"] == "runs")
        assert empty["list"]["runs"] == []
        writer = write_run(name="first")
        writer.points("loss", [0], 1.0)
        hub.notify(writer.commit())
        await take_until(viewer, lambda m: [r["name"] for r in m["list"]["runs"]] == ["first"])
        lite.rename_run("run1", "renamed")
        hub.changed("run1")
        await take_until(viewer, lambda m: [r["name"] for r in m["list"]["runs"]] == ["renamed"])
        lite.delete_run("run1", now_us=1)
        hub.changed("run1")
        await take_until(viewer, lambda m: m["list"]["runs"] == [])

    with_hub(lite, body)


def test_a_failing_panel_takes_no_other_with_it(
    lite: Store, write_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are filled; the error names the panel and the request that the log explains."""
    writer = write_run()
    writer.points("amp.scale", range(5), 65536.0, kind="state")
    writer.points("loss", range(5), 1.0)
    writer.commit()

    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("halfscope_server.panels.scale.ScalePanel.fill", broken)

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1", panels=("scale", "loss")))
        messages = await take_until(viewer, lambda m: m["type"] == "error")
        filled = next(m for m in messages if m["type"] == "panels")
        assert [fill["panel"] for fill in filled["fills"]] == ["loss"]
        error = messages[-1]
        assert error["panel"] == "scale"
        assert "secret" not in error["detail"]
        assert error["request_id"] in caplog.text

    with_hub(lite, body)


def test_closing_ends_a_waiting_viewer(lite: Store) -> None:
    """A viewer that waits for news gets an empty answer, and the hub has no clients left."""

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        waiting = asyncio.create_task(viewer.next())
        await asyncio.sleep(0)
        viewer.close()
        assert await asyncio.wait_for(waiting, WAIT_S) == []
        assert hub.num_clients == 0

    with_hub(lite, body)


def test_a_new_request_replaces_the_former(lite: Store, write_run: Callable[..., Any]) -> None:
    """After a change of run nothing of the former run comes any more."""
    for run_id in ("run1", "run2"):
        writer = write_run(run_id)
        writer.points("loss", [0], 1.0)
        writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1"))
        viewer.watch(RunRequest(run="run2"))
        first = await asyncio.wait_for(viewer.next(), WAIT_S)
        assert first[0]["summary"]["id"] == "run2"

    with_hub(lite, body)


def test_views_are_shared_with_the_rest_of_the_api(lite: Store, write_run: Callable[..., Any]) -> None:
    """A page that was just computed for a request is not computed again for its live updates."""
    writer = write_run()
    writer.points("loss", [0], 1.0)
    writer.commit()
    views = Views(lite)
    view = views.get("run1")

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(RunRequest(run="run1", panels=("loss",)))
        await take_until(viewer, lambda m: m["type"] == "panels")
        assert views.get("run1") is view

    with_hub(lite, body, views=views)


def test_a_comparison_is_told_whenever_one_of_its_runs_changes(lite: Store, write_run: Callable[..., Any]) -> None:
    """Report and panels at once; again after a commit to either run; two viewers share one computation; another run
    wakes nobody."""
    writers = [write_run(run_id, name=run_id) for run_id in ("run1", "run2", "run3")]
    for writer in writers:
        writer.points("loss", range(50), 1.0)
        writer.commit()
    request = CompareRequest(runs=("run1", "run2"), panels=("compare-quality", "nothing"))

    async def body(hub: Hub) -> None:
        viewers = [hub.subscribe(), hub.subscribe()]
        for viewer in viewers:
            viewer.watch(request)
        reports = []
        for viewer in viewers:
            seen = await take_until(viewer, lambda message: message["type"] == "panels")
            reports += [message["report"] for message in seen if message["type"] == "compare"]
            assert [fill["panel"] for fill in seen[-1]["fills"]] == ["compare-quality"]
            assert seen[-1]["fills"][0]["run"] == "run1,run2"
        assert reports[0] is reports[1]
        for at, last in ((0, 60), (1, 70)):
            writers[at].points("loss", range(50, last + 1), 1.0)
            hub.notify(writers[at].commit())

            def is_newer(message: Message, at: int = at, last: int = last) -> bool:
                return message["type"] == "compare" and message["report"].members[at].last_step == last

            await take_until(viewers[0], is_newer)
        served = hub._num_begun
        writers[2].points("loss", [50], 1.0)
        hub._wake({one.run_id for one in writers[2].commit()})
        assert not any(feed.wake.is_set() for feed in hub._feeds.values())
        assert hub._num_begun == served

    with_hub(lite, body)


def test_a_comparison_whose_run_is_deleted_says_which(lite: Store, write_run: Callable[..., Any]) -> None:
    """Its viewer is not computed for any more, and can ask for the others."""
    for run_id in ("run1", "run2", "run3"):
        writer = write_run(run_id, name=f"name of {run_id}")
        writer.points("loss", range(50), 1.0)
        writer.commit()

    async def body(hub: Hub) -> None:
        viewer = hub.subscribe()
        viewer.watch(CompareRequest(runs=("run1", "run2", "run3")))
        await take_until(viewer, lambda message: message["type"] == "compare")
        lite.delete_run("run2", now_us=1)
        hub.changed("run2")
        (*_, gone) = await take_until(viewer, lambda message: message["type"] == "deleted")
        assert (gone["run"], gone["name"]) == ("run2", "name of run2")
        assert viewer.request is None
        viewer.watch(CompareRequest(runs=("run1", "run3")))
        await take_until(viewer, lambda message: message["type"] == "compare")

    with_hub(lite, body)
