"""What people do to runs, and credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from halfscope.wire.messages import Event, Slices
from halfscope_server.store import schema
from halfscope_server.store.store import Store
from halfscope_server.store.types import TokenRow

from tests.helpers.alerts import FIRING, MUTED, NOTICE

Make = Callable[..., Any]

SLICES = Slices(step=1, time_us=1, bucket=0, lids=bytes(4), counts=bytes(4), local=b"", reduced=b"")


def test_rename_and_tag(store: Store, begun: Make) -> None:
    """Of a run that is there; False where it is not."""
    sender = begun()
    assert store.rename_run(sender.run_id, "new name")
    assert store.set_tags(sender.run_id, ["a", "b"])
    row = store.get_run(sender.run_id)
    assert row is not None
    assert (row.name, row.tags) == ("new name", ["a", "b"])
    assert not store.rename_run("nobody", "x")
    assert not store.set_tags("nobody", [])


def test_deleting_leaves_only_the_name(
    store: Store, begun: Make, make_points: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """No row of any table but the note that it was there; other runs are untouched."""
    sender, other = begun(run_id="doomed"), begun(run_id="other")
    for one in (sender, other):
        sketches = make_sketches(1, {0: make_cell([0.5, 2.0])})
        batch = one.batch(make_points([1], {0: [1]}), Event("skip", 1, 1), make_layers("weight"), sketches, SLICES)
        assert not store.commit([batch], now_us=2).refused
    store.compact(now_us=10**15, budget_s=60)
    for one in (sender, other):
        store.alerts.put_silence(dataclasses.replace(MUTED, silence_id=one.run_id, run_id=one.run_id))
        episode = dataclasses.replace(FIRING, run_id=one.run_id)
        assert store.ranks.save(one.run_id, 0, b"state", [], is_done=False, now_us=2) == 0
        assert store.alerts.save_evaluation(one.run_id, state=b"state", episodes=[episode], notices=[NOTICE], now_us=2)
        store.commit([one.batch(make_points([2], {0: [2]}), make_sketches(2, {0: make_cell([0.0])}))], now_us=2)
        assert store.frame_moments(one.run_id).n.tolist() == [[2], [1]]
        assert store.points(one.run_id, store.series(one.run_id)[0].series_id).value.tolist() == [1.0, 2.0]
    assert store.delete_run("doomed", now_us=77)
    assert not store.delete_run("doomed", now_us=78)
    assert not store.delete_run("nobody", now_us=78)
    assert store.deleted_run("doomed") == ("a run", 77)
    assert store.deleted_run("other") is None
    assert store.get_run("doomed") is None
    assert (store.layers("doomed"), store.count_frames("doomed"), store.count_frames("other")) == ([], 0, 2)
    database: Any = store._database
    with database.reading() as connection:
        for table in schema.metadata.sorted_tables:
            if "run_id" in table.c and table.name != "deleted_run":
                ids = set(connection.execute(sa.select(table.c.run_id)).scalars())
                assert ids == {"other"}, table.name


def test_tokens_are_kept_by_their_hash(store: Store) -> None:
    """Put twice it stays what it was; revoked it is gone."""
    store.put_token("h1", name="laptop", created_us=1)
    store.put_token("h1", name="thief", created_us=2)
    store.put_token("h0", name="cluster", created_us=2)
    assert (store.find_token("h1"), store.find_token("h2")) == ("laptop", None)
    assert store.list_tokens() == [
        TokenRow(token_hash="h1", name="laptop", created_us=1),
        TokenRow(token_hash="h0", name="cluster", created_us=2),
    ]
    assert store.revoke_token("h1")
    assert not store.revoke_token("h1")
    assert store.find_token("h1") is None


def test_sessions_end(store: Store) -> None:
    """By signing out, and swept when a new one is made after their time."""
    store.put_session("a", created_us=10, expires_us=100)
    store.put_session("b", created_us=20, expires_us=300)
    assert (store.find_session("a"), store.find_session("b"), store.find_session("c")) == (100, 300, None)
    store.put_session("c", created_us=100, expires_us=400)
    assert store.find_session("a") is None
    store.delete_session("b")
    store.delete_session("b")
    assert (store.find_session("b"), store.find_session("c")) == (None, 400)


def test_series_are_listed_by_name_and_labels(store: Store, begun: Make, make_sender: Make) -> None:
    """Two ranks that declare the same series have it once."""
    begun(["b", "a"], stream="01")
    begun(["a", "c"], stream="02", rank=1)
    assert [row.name for row in store.series("0123456789abcdef")] == ["a", "b", "c"]
    assert store.series("nobody") == []
