"""A run under judgement: the same findings as a judge that looks at whole histories, whatever came when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope_server.ranks import judge as judging
from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.following import Followed
from halfscope_server.store.store import Store
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.conftest import RunWriter
from tests.server.ranks import brute

NUMBERS = itertools.count()
"""Of examples."""
WORDS = {"amp.scale": "loss scale", "amp.skipped": "skipped", "lr": "learning rate"}


def changes(values: Sequence[float]) -> set[int]:
    """Steps at which a value differs from the one before: what ranks other than 0 tell."""
    return {at for at, value in enumerate(values) if at == 0 or not brute.same(value, values[at - 1])}


def told(finding: Finding) -> tuple[Any, ...]:
    a = finding.attributes
    return a["fact"], finding.step, tuple(a["ranks"]), tuple(map(repr, a["values"])), repr(a["expected"])


def write(writer: RunWriter, rank: int, values: Mapping[str, Sequence[float]], first: int, last: int) -> None:
    """The rows of some steps, as the agent of a rank tells them."""
    steps = range(first, last)
    writer.points("time.step_s", steps, 0.1, unit="s")
    for series, every in values.items():
        told_at = changes(every)
        mine = [step for step in steps if rank == 0 or step in told_at]
        if mine:
            writer.points(series, mine, [every[step] for step in mine], kind="state")
    writer.commit()


@st.composite
def histories(draw: st.DrawFn) -> dict[int, dict[str, list[float]]]:
    """Ranks that mostly agree: one schedule for all, with a few steps in which some rank has a value of its own."""
    num_ranks, num_steps = draw(st.integers(2, 4)), draw(st.integers(1, 160))
    rng = random.Random(draw(st.integers(0, 2**32)))
    common = {
        "amp.scale": [2.0 ** (10 + (step // 37) % 3) for step in range(num_steps)],
        "amp.skipped": [float(step % 41 == 0) for step in range(num_steps)],
        "lr": [0.1 / (1 + step // 5) for step in range(num_steps)],
    }
    found: dict[int, dict[str, list[float]]] = {}
    for rank in range(num_ranks):
        length = num_steps if rng.random() < 0.7 else rng.randint(1, num_steps)
        found[rank] = {name: list(values[:length]) for name, values in common.items()}
        for _ in range(rng.choice([0, 0, 1, 3])):
            name, start = rng.choice(list(WORDS)), rng.randrange(length)
            value = rng.choice([0.0, -0.0, 1.0, 512.0, float("inf"), float("nan")])
            for step in range(start, min(length, start + rng.choice([1, 1, 5, 200]))):
                found[rank][name][step] = value
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples, each in a run of its own."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('ranks')}/halfscope.db")
    yield store
    store.close()


@given(history=histories(), order=st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_findings_are_those_of_the_brute_judge_in_any_order_of_arrival(
    shared: Store, history: dict[int, dict[str, list[float]]], order: random.Random
) -> None:
    """Streams arrive in pieces of any length, in any order, and the judge is thrown away and goes on in between."""
    run_id = f"run{next(NUMBERS)}"
    waiting = dict.fromkeys(history, 0)
    writers: dict[int, RunWriter] = {}
    followed, found = Followed(run_id=run_id, store=shared), []
    while waiting:
        rank = order.choice(sorted(waiting))
        if rank not in writers:
            writers[rank] = RunWriter(shared, run_id, rank=rank, world_size=len(history))
        length = len(history[rank]["lr"])
        last = min(length, waiting[rank] + order.choice([1, 7, 60, 200]))
        write(writers[rank], rank, history[rank], waiting[rank], last)
        waiting[rank] = last
        if last == length:
            writers[rank].end("killed", last - 1)
            writers[rank].commit()
            del waiting[rank]
        if order.random() < 0.4:
            found += followed.advance()
        if order.random() < 0.2:
            body = followed.packed()
            followed = Followed(run_id=run_id, store=shared)
            followed.take(body)
    found += followed.advance()
    right = [
        (fact, step, ranks, tuple(repr(value + 0.0) for value in values), repr(most + 0.0))
        for fact, step, ranks, values, most in brute.partings(history, WORDS)
    ]
    assert sorted(map(told, found)) == sorted(right)
    agreement = {one.fact: list(one.stretches) for one in followed.judgement().agreement}
    assert {fact: own for fact, own in agreement.items() if own and fact in WORDS.values()} == brute.stretches(
        history, WORDS
    )


@given(
    stretches=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1]))),
    limit=st.integers(1, 10),
)
@settings(max_examples=50, deadline=None)
def test_of_many_partings_the_nearest_are_taken_together(stretches: list[tuple[int, int]], limit: int) -> None:
    """Nothing that was apart is left out, and no gap is closed while a narrower one is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "MAX_STRETCHES", limit)
        found = judging.fewer(stretches)
    covered = {step for first, last in found for step in range(first, last + 1)}
    meant = {step for first, last in stretches for step in range(first, last + 1)}
    assert meant <= covered
    assert len(found) <= limit
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))
    filled = [
        len(list(run)) for is_new, run in itertools.groupby(sorted(covered), key=lambda s: s not in meant) if is_new
    ]
    left = [other[0] - one[1] - 1 for one, other in itertools.pairwise(found)]
    assert max(filled, default=0) <= min(left, default=10_000)


def test_nothing_is_judged_before_the_last_rank_has_passed(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """A rank that says nothing holds the judge up; its next word lets it go on."""
    zero, one = ranks_of(2)
    same = {"amp.scale": [1.0] * 20}
    write(zero, 0, {"amp.scale": [1.0] * 9 + [2.0] * 11}, 0, 20)
    followed = Followed(run_id="run1", store=lite)
    assert followed.advance() == []
    write(one, 1, same, 0, 9)
    assert followed.advance() == []
    write(one, 1, same, 9, 10)
    (finding,) = followed.advance()
    assert (finding.kind, finding.step) == ("rank_disagreement", 9)
    assert finding.attributes["ranks"] == [1]  # of a tie, from rank 0
    write(one, 1, same, 10, 20)
    assert followed.advance() == []
    (agreement,) = followed.judgement().agreement
    assert (agreement.outcome, agreement.num_steps) == ("parted", 20)
    assert agreement.last is not None
    assert agreement.last.last_step is None


def test_scalers_made_with_different_scales_part_at_the_first_step(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """The rank that is alone is named, with its value and the others'."""
    for rank, writer in enumerate(ranks_of(4)):
        write(writer, rank, {"amp.scale": [1024.0 if rank == 2 else 65536.0] * 5}, 0, 5)
    (finding,) = Followed(run_id="run1", store=lite).advance()
    assert finding.step == 0
    assert finding.attributes == {
        "fact": "loss scale", "ranks": [2], "num_ranks": 1, "values": [1024.0], "expected": 65536.0,
    }  # fmt: skip


def test_own_losses_and_gradient_norms_are_no_disagreement(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Every rank has its own batch."""
    for rank, writer in enumerate(ranks_of(4)):
        writer.points("loss", range(100), np.arange(100) + rank)
        writer.points("grad.norm_local", range(100), np.arange(100) * (rank + 1.0))
        write(writer, rank, {"amp.scale": [1.0] * 100, "lr": [0.1] * 100}, 0, 100)
    followed = Followed(run_id="run1", store=lite)
    assert followed.advance() == []
    assert [(one.fact, one.outcome, one.num_steps) for one in followed.judgement().agreement] == [
        ("loss scale", "agree", 100), ("learning rate", "agree", 100),
    ]  # fmt: skip


def test_checksums_are_compared_at_steps_that_ranks_share(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Ranks may sketch at different intervals; a checksum says nothing of another step."""
    zero, one = ranks_of(2)
    for rank, writer in enumerate((zero, one)):
        write(writer, rank, {}, 0, 100)
    zero.points("weights.checksum", [0, 10, 20, 50], [1.0, 2.0, 3.0, 4.0])
    one.points("weights.checksum", [0, 50, 60], [1.0, 4.5, 5.0])
    for writer in (zero, one):
        writer.commit()
    (finding,) = Followed(run_id="run1", store=lite).advance()
    assert (finding.step, finding.attributes["fact"]) == (50, "weights")


def test_a_step_not_finite_in_the_sum_alone_is_told_once(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """At step 10 every rank's own gradient was finite; at step 30 rank 1's was not, at 40 a hook had rounded it up."""
    for rank, writer in enumerate(ranks_of(2)):
        own = np.zeros(50)
        own[30] = float(rank == 1)
        norm = np.ones(50)
        norm[[10, 11, 30, 40]] = np.inf
        writer.points("grad.nonfinite_local", range(50), own)
        if rank == 0:
            writer.event("comm_overflow", 40, "warning", ["fc.weight"])
            writer.points("grad.norm", range(50), norm)
        write(writer, rank, {}, 0, 50)
    followed = Followed(run_id="run1", store=lite)
    assert [(one.kind, one.step) for one in followed.advance()] == [("comm_overflow", 10)]
    assert followed.judgement().num_nonfinite == {1: 1}
    assert followed.judgement().first_nonfinite == {1: 30}


def test_a_slow_rank_is_a_straggler_and_a_hiccup_is_none(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Rank 2 computes for 40% longer from step 100 on; rank 0 pauses once for a checkpoint. Told once, with cost."""
    rng = np.random.default_rng(1)
    busy = 0.1 * (1 + 0.05 * rng.standard_normal((4, 300)))
    busy[2, 100:] *= 1.4
    busy[0, 70] = 60.0
    for rank, writer in enumerate(ranks_of(4)):
        writer.points("rank.busy_s", range(300), busy[rank])
        writer.points("time.step_s", range(300), busy.max(axis=0))
        writer.commit()
    followed = Followed(run_id="run1", store=lite)
    (finding,) = followed.advance()
    assert (finding.kind, finding.step, finding.attributes["rank"]) == ("straggler", 149, 2)
    others = float(np.median([np.median(busy[rank, 100:150]) for rank in (0, 1, 3)]))
    extra_s = float(np.median(busy[2, 100:150])) - others
    assert finding.attributes["extra_s"] == pytest.approx(extra_s)
    assert finding.attributes["cost_share"] == pytest.approx(extra_s / np.median(busy[:, 100:150].max(axis=0)))
    straggler = followed.judgement().straggler
    assert straggler is not None
    assert (straggler.rank, straggler.since_step) == (2, 100)


def test_healthy_ranks_with_noise_raise_nothing(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Log-normal busy times, 2 and 4 ranks, 2,000 steps."""
    rng = np.random.default_rng(2)
    for num_ranks in (2, 4):
        run_id = f"healthy{num_ranks}"
        for rank, writer in enumerate(ranks_of(num_ranks, run_id=run_id)):
            writer.points("rank.busy_s", range(2000), 0.02 * np.exp(0.3 * rng.standard_normal(2000)))
            write(writer, rank, {"amp.scale": [1.0] * 2000, "amp.skipped": [0.0] * 2000}, 0, 2000)
        followed = Followed(run_id=run_id, store=lite)
        assert followed.advance() == []


def test_a_rank_that_comes_late_is_judged_with_the_others(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Lost for a while, the others were judged without it; when it is back, so are its steps."""
    zero, one = ranks_of(2)
    write(zero, 0, {"amp.scale": [1.0] * 20}, 0, 20)
    write(one, 1, {"amp.scale": [1.0] * 5 + [2.0] * 15}, 0, 5)
    followed = Followed(run_id="run1", store=lite)
    lite.mark_lost_contact(silent_since_us=one.now_us + 1, now_us=one.now_us + 10)
    assert followed.advance() == []
    write(one, 1, {"amp.scale": [1.0] * 5 + [2.0] * 15}, 5, 20)
    assert [(f.step, f.attributes["ranks"]) for f in followed.advance()] == [(5, [1])]


def test_a_restart_is_judged_as_an_attempt_of_its_own(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """What parted before the restart is over with it."""
    for attempt in (0, 1):
        for rank, writer in enumerate(ranks_of(2, attempt=attempt)):
            scale = 2.0 if rank == 1 and attempt == 0 else 1.0
            write(writer, rank, {"amp.scale": [scale] * 60}, 0, 60)
    followed = Followed(run_id="run1", store=lite)
    assert [(f.attempt, f.step) for f in followed.advance()] == [(0, 0)]
    (agreement,) = followed.judgement().agreement
    assert agreement.first is not None
    assert (agreement.first.attempt, agreement.num_steps) == (0, 120)
    assert agreement.last is not None
    assert agreement.last.last_step is not None
