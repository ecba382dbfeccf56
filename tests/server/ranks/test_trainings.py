"""Real trainings on two and four ranks, from their journals to what the server says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader, read_info
from halfscope_server.query.view import Views
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.service import RankService
from halfscope_server.ranks.types import RanksReport
from halfscope_server.store.store import Store
from halfscope_server.store.types import SERVER_STREAM, EventRow

from tests.helpers.distributed import train
from tests.helpers.preloaded import Preloaded
from tests.helpers.stream import Stream

TRAINING = """
model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale={init_scale})
{before}
run = halfscope.watch(model, optimizer, scaler, every=5)
torch.manual_seed(rank)
for step in range(60):
    batch = torch.randn(4, 8)
    {spoil}
    optimizer.zero_grad()
    loss = model(batch).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    run.step(loss=loss)
run.finish()
"""


@pytest.fixture
def judged(lite: Store, python: Preloaded, tmp_path: Path) -> Callable[..., tuple[RanksReport, list[EventRow]]]:
    """Trains, brings the journals into the store, judges; the report, and what the server wrote of ranks."""

    def judge(num_ranks: int = 2, *, init_scale: str = "2.0**10", before: str = "", spoil: str = "pass"):  # type: ignore[no-untyped-def]
        program = TRAINING.format(init_scale=init_scale, before=before, spoil=spoil)
        job = train(python, tmp_path, program, num_ranks=num_ranks)
        run_id = ""
        for place in find_streams(job.journals):
            run_id = place.run_id
            sender = Stream(run_id, place.stream, read_info(place))
            sender.welcomed(lite.grant(sender.hello(), now_us=1))
            payloads = [bytes(entry.payload) for entry in JournalReader(place).read(final=True)]
            assert not lite.commit([sender.batch_of(payloads)], now_us=2).refused
        RankService(lite, Ranks(lite)).round()
        view = Views(lite).get(run_id)
        assert view is not None
        return Ranks(lite).report(view), [e for e in lite.events(run_id) if e.stream == SERVER_STREAM]

    return judge


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_healthy_training_raises_nothing(
    judged: Callable[..., tuple[RanksReport, list[EventRow]]], num_ranks: int
) -> None:
    """Own batches and losses, one scale; every fact agrees at every step, and reductions are right to rounding."""
    report, events = judged(num_ranks)
    assert events == []
    assert report.world_size == report.num_seen == num_ranks
    assert {one.fact: one.outcome for one in report.agreement}.items() >= {
        "loss scale": "agree", "skipped": "agree", "learning rate": "agree", "step count": "agree",
    }.items()  # fmt: skip
    assert {one.num_steps for one in report.agreement if one.fact != "weights"} == {60}
    assert [row.last_step for row in report.ranks] == [59] * num_ranks
    assert report.origins == ()
    (bucket,) = report.buckets
    assert bucket.error is not None
    assert bucket.error < 1e-6


def test_an_overflow_on_one_rank_is_attributed_to_it_though_all_skip(
    judged: Callable[..., tuple[RanksReport, list[EventRow]]],
) -> None:
    """The batch of rank 1 is too large at step 20: both scalers skip, ranks agree, and one is named."""
    report, events = judged(spoil="batch = batch * (1e38 if rank == 1 and step == 20 else 1.0)")
    assert events == []
    (origin,) = report.origins
    assert (origin.step, origin.kind, origin.ranks) == (20, "backward", (1,))
    assert set(origin.layers) <= {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert [row.num_nonfinite for row in report.ranks] == [0, 1]
    assert [row.num_skipped for row in report.ranks] == [1, 1]
    assert {one.outcome for one in report.agreement} == {"agree"}


def test_nan_in_the_data_of_one_rank_names_that_rank(
    judged: Callable[..., tuple[RanksReport, list[EventRow]]],
) -> None:
    """C53: rank 0's loss is finite, its gradient after the reduction is not; it began on rank 1."""
    report, _ = judged(init_scale="256.0", spoil='batch = batch * (float("nan") if rank == 1 and step == 59 else 1.0)')
    (origin,) = report.origins
    assert (origin.step, origin.ranks) == (59, (1,))
    assert report.sentence.startswith("Step 59 became NaN or Inf in the gradient of rank 1")


def test_scalers_with_different_scales_are_told_at_the_first_step(
    judged: Callable[..., tuple[RanksReport, list[EventRow]]],
) -> None:
    """The average then mixes gradients of different scale, silently."""
    report, events = judged(init_scale="2.0**10 * (1 + rank)")
    told = [event for event in events if event.kind == "rank_disagreement"]
    event, *others = told
    assert {other.attributes["fact"] for other in others} <= {"weights"}  # what follows from it
    assert (event.step, event.rank) == (0, 1)
    assert event.attributes["fact"] == "loss scale"
    assert (event.attributes["values"], event.attributes["expected"]) == ([2048.0], 1024.0)
    assert report.role == "failed"
    assert report.sentence == "Rank 1 parts from the others in loss scale at step 0: 2,048 instead of 1,024."


def test_an_overflow_in_compression_is_told_from_one_in_the_backward(
    judged: Callable[..., tuple[RanksReport, list[EventRow]]],
) -> None:
    """Finite in FP32 and beyond FP16's range on the way to the others: the compression is named."""
    report, events = judged(
        before="model.register_comm_hook(None, halfscope.comm_hooks.fp16_compress)",
        spoil="batch = batch * (1e4 if rank == 1 and step == 20 else 1.0)",
    )
    assert [event for event in events if event.kind != "comm_error"] == []
    assert [(o.step, o.kind, o.ranks) for o in report.origins] == [(20, "compression", (1,))]
    assert {one.outcome for one in report.agreement} == {"agree"}
